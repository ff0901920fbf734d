//! Hands the results of an entry out as replies. The runtime's thread.

use std::sync::Arc;

use super::Runtime;
use super::running_batch::RunningBatch;
use crate::caller::fcall::UNSTABLE;
use crate::caller::host_trait::Level;
use crate::error_reply;
use crate::io;
use crate::io::results::EncodedResult;
use crate::isolate::log_quota::Speaker;

impl Runtime {
    /// Hands out the replies of `done` calls of the request from `first` on.
    pub(super) fn deliver(&mut self, batch: &mut RunningBatch<'_>, first: usize, done: usize) {
        let io = self.isolate.io;
        let mut failed = std::mem::take(&mut self.isolate.bridge().failed).into_iter().peekable();
        let mut at = io::RESPONSE_AT;
        for call in first..first + done {
            let (result, next) = EncodedResult::read(&io, at);
            let index = batch.entered[call];
            match result {
                EncodedResult::Reply(reply) => {
                    if let Some((_, error)) = failed.next_if(|(failed, _)| *failed == call) {
                        self.stats.errors += 1;
                        batch.give(index, &error_reply::reply(&error));
                    } else {
                        batch.give(index, reply);
                    }
                }
                EncodedResult::Unstable(untold) => {
                    batch.is_untold = true;
                    self.untold = untold;
                    batch.give(index, UNSTABLE);
                }
                EncodedResult::Thrown { message, stack } => {
                    let message = String::from_utf8_lossy(message);
                    let stack = String::from_utf8_lossy(stack);
                    let error = self.thrown(batch, call, &message, &stack);
                    batch.give(index, &error);
                }
            }
            at = next;
        }
    }

    /// The reply to a thrown error. Its stack goes to the log, within the function's quota.
    fn thrown(
        &mut self,
        batch: &mut RunningBatch<'_>,
        call: usize,
        message: &str,
        stack: &str,
    ) -> Vec<u8> {
        self.stats.errors += 1;
        let id = self.isolate.bridge().ids[call];
        let functions = Arc::clone(&self.state(batch.tenant).functions);
        let Some(callable) = functions.by_id(id) else { return error_reply::reply(message) };
        let text = if stack.is_empty() { message } else { stack };
        let speaker = Speaker {
            tenant: batch.tenant.0,
            library: Arc::clone(&callable.library),
            function: callable.name.clone(),
        };
        if self.isolate.bridge().stacks.take(speaker, batch.now_ms) {
            let text = error_reply::without_prelude(text);
            batch.host.log(Level::Warn, &callable.library, &callable.name, &text);
        }
        error_reply::thrown(message, stack, &callable.library, &callable.name)
    }
}
