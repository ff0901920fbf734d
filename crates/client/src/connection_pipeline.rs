//! Many requests at once over a connection.
//!
//! 1. What is unanswered is bounded, as `remote` says.
//! 2. A pipeline that breaks off, also by a panic of its caller's code, leaves replies behind: the
//!    connection refuses all further calls, so none takes another's reply.
//!
//! Belongs to one thread at a time.

use std::collections::VecDeque;

use nigh_resp::frame::Frame;
use nigh_resp::limits::ARRAY_LEN;
use nigh_shm::layout::VALUE_BYTES_MAX;

use crate::client_error::ClientError;
use crate::remote::{Connection, NO_WORDS, no_words};

impl Connection {
    /// Sends many requests and gathers their replies, in order.
    ///
    /// # Errors
    /// Those of [`Connection::receive`].
    pub fn pipeline<C>(
        &mut self,
        commands: impl IntoIterator<Item = C>,
    ) -> Result<Vec<Frame>, ClientError>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        let mut frames = Vec::new();
        self.pipeline_each(commands, |frame| frames.push(frame))?;
        Ok(frames)
    }

    /// Sends many requests, and hands out their replies in order as they come. A window of requests
    /// and the longest reply bound the memory, whatever the number of commands.
    ///
    /// # Errors
    /// Those of [`Connection::receive`]; [`ClientError::NoRoom`], [`ClientError::WordTooLong`] and
    /// [`ClientError::TooManyWords`] behind the replies to the requests before. Behind an error or
    /// a panic of `each` the connection can't be used any more.
    pub fn pipeline_each<C>(
        &mut self,
        commands: impl IntoIterator<Item = C>,
        mut each: impl FnMut(Frame),
    ) -> Result<(), ClientError>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        self.flush()?;
        self.is_amid = true;
        self.send_each(commands, &mut each)?;
        self.is_amid = false;
        Ok(())
    }

    fn send_each<C>(
        &mut self,
        commands: impl IntoIterator<Item = C>,
        each: &mut impl FnMut(Frame),
    ) -> Result<(), ClientError>
    where
        C: IntoIterator,
        C::Item: AsRef<[u8]>,
    {
        let (mut unanswered, mut all_sent) = (Unanswered::default(), Ok(()));
        for command in commands {
            let written = self.out.len();
            let mut too_much = None;
            let words = command.into_iter();
            all_sent = self.append(Words { words, number: 0, too_much: &mut too_much });
            if let Some(too_much) = too_much {
                self.out.truncate(written);
                let address = self.address().to_string();
                all_sent = Err(match too_much {
                    TooMuch::Bytes(bytes) => ClientError::WordTooLong { address, bytes },
                    TooMuch::Words(words) => ClientError::TooManyWords { address, words },
                });
            }
            if all_sent.is_err() {
                break;
            }
            if self.out[written..] == *NO_WORDS {
                self.out.truncate(written);
            }
            let request_bytes = self.out.len() - written;
            if unanswered.bytes + request_bytes > self.window_bytes {
                // The new request waits until the replies to half a window have come.
                self.write(written)?;
                let behind = std::mem::take(&mut self.out);
                while !unanswered.sizes.is_empty()
                    && unanswered.bytes + request_bytes > self.window_bytes / 2
                {
                    each(self.next_reply(&unanswered)?);
                    unanswered.pop();
                }
                self.out = behind;
            }
            unanswered.push(request_bytes);
        }
        while !unanswered.sizes.is_empty() {
            each(self.next_reply(&unanswered)?);
            unanswered.pop();
        }
        all_sent
    }

    /// The reply to the first request that has none.
    fn next_reply(&mut self, unanswered: &Unanswered) -> Result<Frame, ClientError> {
        match unanswered.sizes.front() {
            Some(0) => Ok(no_words()),
            _ => self.next_frame(),
        }
    }
}

/// Why a server would end the connection at a request.
enum TooMuch {
    /// A word has so many: more than a value can have.
    Bytes(usize),
    /// There are so many, or more.
    Words(usize),
}

/// The words of a request, up to one at which a server would end the connection, and why.
struct Words<'l, I> {
    words: I,
    number: usize,
    too_much: &'l mut Option<TooMuch>,
}

impl<I: Iterator<Item: AsRef<[u8]>>> Iterator for Words<'_, I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        let word = self.words.next()?;
        let bytes = word.as_ref().len();
        self.number += 1;
        *self.too_much = match bytes {
            bytes if bytes > VALUE_BYTES_MAX => Some(TooMuch::Bytes(bytes)),
            _ if self.number > ARRAY_LEN => Some(TooMuch::Words(self.number)),
            _ => return Some(word),
        };
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.words.size_hint()
    }
}

/// The sizes of a pipeline's unanswered requests; 0 for one that wasn't sent.
#[derive(Default)]
struct Unanswered {
    sizes: VecDeque<usize>,
    bytes: usize,
}

impl Unanswered {
    fn push(&mut self, size: usize) {
        self.sizes.push_back(size);
        self.bytes += size;
    }

    fn pop(&mut self) {
        self.bytes -= self.sizes.pop_front().unwrap_or(0);
    }
}
