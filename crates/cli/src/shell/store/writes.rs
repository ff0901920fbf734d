//! Commands that write, and how they do.

use super::arguments;
use super::reads::integer;
use super::session::Session;
use anyhow::{Result, bail};
use nigh::{DbError, WriteBatch};
use nigh_client::Frame;

fn ok() -> Frame {
    Frame::Simple(b"OK".to_vec())
}

fn queued() -> Frame {
    Frame::Simple(b"QUEUED".to_vec())
}

/// Refuses what a batch can't hold.
fn outside_batch(session: &Session) -> Result<()> {
    if session.batch.is_some() {
        bail!("a batch takes put and delete alone: batch commit or batch abort first");
    }
    Ok(())
}

/// `put KEY VALUE [TTL]`.
pub(super) fn put(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    let time = words.get(2).map(|word| arguments::time(word)).transpose()?;
    let options = session.write_options(time);
    if let Some(batch) = &mut session.batch {
        batch.put_with(&words[0], &words[1], &options);
        return Ok(queued());
    }
    session.owner()?.put_with(&words[0], &words[1], &options)?;
    Ok(ok())
}

/// `putnew KEY VALUE [TTL]`: whether the key wasn't there.
pub(super) fn putnew(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    outside_batch(session)?;
    let time = words.get(2).map(|word| arguments::time(word)).transpose()?;
    let (options, value) = (session.write_options(time), Some(&words[1][..]));
    let did = session.owner()?.compare_and_set_with(&words[0], None, value, &options)?;
    Ok(integer(did.into()))
}

/// `cas KEY EXPECTED [NEW]`: whether it did; without NEW it deletes.
pub(super) fn cas(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    outside_batch(session)?;
    let (options, new) = (session.write_options(None), words.get(2).map(Vec::as_slice));
    let expected = Some(&words[1][..]);
    let did = session.owner()?.compare_and_set_with(&words[0], expected, new, &options)?;
    Ok(integer(did.into()))
}

/// `delete KEY...`: how many were there.
pub(super) fn delete(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    if let Some(batch) = &mut session.batch {
        for key in words {
            batch.delete(key);
        }
        return Ok(queued());
    }
    let (db, options) = (session.owner()?, session.write_options(None));
    let mut deleted = 0;
    for key in words {
        deleted += u64::from(db.delete_with(key, &options)?);
    }
    Ok(integer(deleted))
}

/// `incr KEY [BY]`: the sum.
pub(super) fn incr(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    outside_batch(session)?;
    let by = words.get(1).map_or(Ok(1), |word| arguments::addend(word))?;
    let options = session.write_options(None);
    Ok(Frame::Integer(session.owner()?.incr_with(&words[0], by, &options)?))
}

/// `expire KEY [TTL]`: whether the key is there; without TTL it stays for good.
pub(super) fn expire(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    outside_batch(session)?;
    let time = words.get(1).map(|word| arguments::time(word)).transpose()?;
    let options = session.write_options(time);
    Ok(integer(session.owner()?.expire(&words[0], &options)?.into()))
}

/// `batch begin`, `batch commit`, `batch abort`.
pub(super) fn batch(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    session.owner()?;
    let verb = words[0].to_ascii_lowercase();
    match (&verb[..], session.batch.take()) {
        (b"begin", None) => session.batch = Some(WriteBatch::new()),
        (b"begin", Some(batch)) => {
            session.batch = Some(batch);
            bail!("a batch has begun already: batch commit or batch abort first");
        }
        (b"commit", Some(batch)) => {
            let options = session.write_options(None);
            match session.owner()?.write_with(&batch, &options) {
                Ok(_) => {}
                // It is made.
                Err(error @ DbError::NotDurable { .. }) => bail!("{error}"),
                Err(error) => {
                    session.batch = Some(batch);
                    bail!("{error} (the batch is still there: batch commit again, or batch abort)");
                }
            }
        }
        (b"abort", Some(_)) => {}
        (b"commit" | b"abort", None) => bail!("no batch has begun: write batch begin first"),
        (_, batch) => {
            session.batch = batch;
            let word = String::from_utf8_lossy(&words[0]);
            bail!("`{word}` is nothing that a batch does: write batch begin, commit or abort");
        }
    }
    Ok(ok())
}

/// `flush`.
pub(super) fn flush(session: &mut Session, _: &[Vec<u8>]) -> Result<Frame> {
    session.owner()?.flush()?;
    Ok(ok())
}

/// `strong [on|off]`.
pub(super) fn strong(session: &mut Session, words: &[Vec<u8>]) -> Result<Frame> {
    session.owner()?;
    if let Some(word) = words.first() {
        session.strong = arguments::switch(word)?;
        return Ok(ok());
    }
    Ok(Frame::Simple(if session.strong { b"on".to_vec() } else { b"off".to_vec() }))
}
