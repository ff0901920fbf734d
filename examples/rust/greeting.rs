fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = nigh::Db::open("data", &nigh::Options::new())?;
    db.put(b"greeting", b"hello")?;        // survives this process; on disk within about a second
    if let Some(value) = db.get(b"greeting")? {         // where it lies: no lock, no copy
        println!("{}", String::from_utf8_lossy(&value));
    }
    let strong = nigh::WriteOptions::strong();
    db.put_with(b"order", b"paid", &strong)?;           // on disk when it returns
    db.close()?;
    Ok(())
}
