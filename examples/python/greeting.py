import nigh

with nigh.Db("data") as db:
    db[b"greeting"] = b"hello"              # survives this process
    db.put(b"order", b"paid", strong=True)  # on disk when it returns
    with db.batch() as batch:               # all of it or nothing
        batch.put(b"user:1", b"Ada")
        batch.put(b"user:2", b"Alan")
    print(db[b"greeting"].decode(), db.get(b"other"))
    print(sorted(db.items(b"user:")))
