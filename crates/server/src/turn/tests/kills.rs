//! CLIENT LIST and CLIENT KILL.

use super::*;
use crate::net::client::Close;

#[test]
fn a_client_that_has_just_left_its_shard_is_found() {
    // WATCH moves a client to the owner. Eight connections on, the same turn has a CLIENT LIST and
    // a CLIENT KILL: neither met the one that was about to be handed over, which stayed.
    for command in ["LIST", "KILL"] {
        let mut shards = Shards::of(&[1]);
        let tenant = TenantId(0);
        let mut mover = shards.connect(1, tenant);
        let mut others: Vec<Peer> = (0..8).map(|_| shards.connect(1, tenant)).collect();
        let mut asker = shards.connect(1, tenant);
        shards.send(&mut mover, &[vec![b"WATCH", b"k"]]);
        others.iter_mut().for_each(|other| shards.send(other, &[vec![b"PING"]]));
        let id = |shards: &mut Shards, slot| {
            shards.shards[1]
                .work
                .slab
                .get_mut(slot)
                .expect("it is there")
                .pipe
                .client
                .id
                .to_string()
        };
        let id = id(&mut shards, mover.slot);
        shards.send(&mut asker, &[vec![b"CLIENT", command.as_bytes(), b"ID", id.as_bytes()]]);
        // As if the other shard had told.
        let connection = shards.shards[1].work.slab.get_mut(asker.slot).expect("it is there");
        connection.pipe.pending = Pending::Refreshed;
        shards.turn_one(1, false);
        let _ = asker.stream.read_to_end(&mut asker.came);
        let came = asker.came.escape_ascii().to_string();
        let moving = &shards.shards[1].work.moving;
        assert_eq!(moving.len(), 1, "it is on its way");
        let close = moving[0].1.pipe.client.close;
        match command {
            "LIST" => assert!(came.contains(&format!("id={id} ")), "{came}"),
            _ => assert_eq!((came.as_str(), close), (":1\\r\\n", Close::Now)),
        }
    }
}
