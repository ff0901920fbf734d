//! Asking a server for local access: descriptors of its arenas, and the rings.
//!
//! ```text
//! LOCAL ATTACH 1 ──> socket ──> reply (names and values) + descriptors: arenas, rings
//!                                  └─> ForeignReaders, RingStream: the connection goes on there
//! ```
//!
//! 1. A refusal leaves the connection as it is. Behind the reply the connection's bytes go by the
//!    rings; so when something fails then, the connection is of no use.
//! 2. Nothing that came is trusted: sizes are compared with the memory, arenas with their place.
//!
//! `docs/formats/local.md` has the bytes.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use nigh_resp::frame::Frame;
use nigh_shm::local::{LocalClientEnd, LocalSpec, PROTOCOL, attach};
use nigh_shm::{ForeignReader, MOST_PARTITIONS};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Most descriptors of an answer: the arenas, and the rings.
const FDS_MOST: usize = MOST_PARTITIONS + 1;

/// The request.
pub(crate) fn request() -> [Vec<u8>; 3] {
    [b"LOCAL".to_vec(), b"ATTACH".to_vec(), PROTOCOL.to_string().into_bytes()]
}

/// What a server has handed over.
pub(crate) struct Grant {
    /// The arenas, in the order of their partitions.
    pub(crate) arenas: Vec<ForeignReader>,
    /// The rings.
    pub(crate) end: LocalClientEnd,
    /// Bytes of the ring of requests.
    pub(crate) request_bytes: usize,
    /// Bytes of the ring of replies.
    pub(crate) reply_bytes: usize,
}

/// Reads bytes of the answer, and the descriptors that come with them. Returns how many bytes. A
/// process that is short of descriptors gets all bytes, and some of the descriptors: [`Grant::of`]
/// counts them.
pub(crate) fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    fds: &mut Vec<OwnedFd>,
) -> std::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(got.bytes)
}

impl Grant {
    /// Maps what the answer and its descriptors say. Errors are complete sentences' ends.
    pub(crate) fn of(answer: &Frame, mut fds: Vec<OwnedFd>) -> Result<Grant, String> {
        let value = |name: &str| {
            let found = value_of(answer, name).and_then(|it| u32::try_from(it).ok());
            found.ok_or_else(|| format!("the answer to LOCAL ATTACH has no number '{name}'"))
        };
        let protocol = value("protocol")?;
        if protocol != PROTOCOL {
            return Err(format!(
                "the server speaks version {protocol} of the local protocol, and this client \
                 {PROTOCOL}: use a client of the server's version"
            ));
        }
        let partitions = value("partitions")? as usize;
        let spec = LocalSpec {
            request_bytes: value("request-bytes")?,
            reply_bytes: value("reply-bytes")?,
        };
        if !(1..=MOST_PARTITIONS).contains(&partitions) || fds.len() != partitions + 1 {
            return Err(format!(
                "{} descriptors came for {partitions} arenas and the rings: is this process at its \
                 limit of open files (ulimit -n)?",
                fds.len()
            ));
        }
        let rings = fds.pop().expect("there are two at least");
        let end = attach(&rings, spec).map_err(|error| error.to_string())?;
        let arenas = fds.into_iter().enumerate().map(|(partition, fd)| {
            let name = PathBuf::from(format!("of partition {partition}"));
            let arena = ForeignReader::of_file(File::from(fd), &name).map_err(why_unmapped)?;
            let info = arena.info();
            if (info.partition as usize, info.partitions as usize) != (partition, partitions) {
                return Err(format!(
                    "the arena of partition {partition}/{partitions} says that it is {}/{}",
                    info.partition, info.partitions
                ));
            }
            Ok(arena)
        });
        let arenas = arenas.collect::<Result<_, _>>()?;
        let (request_bytes, reply_bytes) = (spec.request_bytes as usize, spec.reply_bytes as usize);
        Ok(Grant { arenas, end, request_bytes, reply_bytes })
    }
}

/// Why an arena isn't mapped, and what to do.
fn why_unmapped(error: nigh_shm::ArenaError) -> String {
    match &error {
        nigh_shm::ArenaError::Io { doing: "mapping the file", .. } => format!(
            "{error}: this process has too many mappings (1024 of arenas at most), or too few \
             addresses (ulimit -v, vm.max_map_count): close other clients"
        ),
        nigh_shm::ArenaError::OtherVersion { found, known, .. } => format!(
            "the arena has format version {found}, and this client reads {known}: use a client \
             of the server's version"
        ),
        _ => error.to_string(),
    }
}

/// The number of a name, in pairs or a map.
fn value_of(answer: &Frame, name: &str) -> Option<i64> {
    let is_it = |frame: &Frame| frame.bytes() == Some(name.as_bytes());
    match answer {
        Frame::Map(pairs) => pairs.iter().find(|(key, _)| is_it(key))?.1.integer(),
        other => {
            let pairs = other.elements()?.as_chunks::<2>().0;
            pairs.iter().find(|[key, _]| is_it(key))?[1].integer()
        }
    }
}
