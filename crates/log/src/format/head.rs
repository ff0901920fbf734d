//! The head of a log file: its first block.

use crate::error::LogError;
use crate::format::layout::{
    BLOCK_BYTES, FILE_BYTES_LEAST, FILE_BYTES_MOST, VERSION, head as h, put, word32, word64,
};
use crate::format::names::FileName;
use crate::format::sum::{Secret, of_head};
use crate::position::Chain;

/// What a head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// The log's id.
    pub log_id: [u8; 16],
    /// The chain.
    pub chain: Chain,
    /// The file's number, from 1.
    pub number: u64,
    /// Bytes that frames may use.
    pub file_bytes: u64,
    /// Random, for each preparation.
    pub salt: u64,
}

impl Head {
    /// The block.
    #[must_use]
    pub(crate) fn encode(&self, secret: &Secret) -> Vec<u8> {
        let mut block = vec![0; h::BYTES];
        put(&mut block, 0, h::MAGIC);
        put(&mut block, h::VERSION, &VERSION.to_le_bytes());
        put(&mut block, h::LOG_ID, &self.log_id);
        put(&mut block, h::GENERATION, &self.chain.generation.to_le_bytes());
        put(&mut block, h::SHARD, &self.chain.shard.to_le_bytes());
        put(&mut block, h::SHARDS, &self.chain.shards.to_le_bytes());
        put(&mut block, h::FILE, &self.number.to_le_bytes());
        put(&mut block, h::FILE_BYTES, &self.file_bytes.to_le_bytes());
        put(&mut block, h::SALT, &self.salt.to_le_bytes());
        let sum = sum_of(secret, &block);
        put(&mut block, h::SUM, &sum.to_le_bytes());
        block
    }

    /// Parses a block that stands in a file of this name and length.
    ///
    /// # Errors
    /// `NewerVersion`, or `Head`.
    pub(crate) fn parse(
        block: &[u8],
        secret: &Secret,
        log_id: &[u8; 16],
        chain: &Chain,
        name: &FileName,
        length: u64,
    ) -> Result<Head, LogError> {
        let wrong = |what| LogError::Head { file: name.to_string(), what };
        if block.len() != h::BYTES || !block.starts_with(h::MAGIC) {
            return Err(wrong("it is no log file"));
        }
        let version = word32(block, h::VERSION);
        if version > VERSION {
            let file = name.to_string();
            return Err(LogError::NewerVersion { file, found: version, known: VERSION });
        }
        if word32(block, h::SUM) != sum_of(secret, block) {
            return Err(wrong("its checksum is wrong"));
        }
        let mut id = [0; 16];
        id.copy_from_slice(block.get(h::LOG_ID..h::LOG_ID + 16).unwrap_or(&[0; 16]));
        let head = Head {
            log_id: id,
            chain: Chain {
                generation: word64(block, h::GENERATION),
                shard: word32(block, h::SHARD),
                shards: word32(block, h::SHARDS),
            },
            number: word64(block, h::FILE),
            file_bytes: word64(block, h::FILE_BYTES),
            salt: word64(block, h::SALT),
        };
        if version == 0 {
            return Err(wrong("its version is 0"));
        }
        if head.log_id != *log_id {
            return Err(wrong("it is of another log"));
        }
        if head.chain != *chain || !name.is_of(chain) || head.number != name.number {
            return Err(wrong("it is of another file"));
        }
        let sizes = FILE_BYTES_LEAST..=FILE_BYTES_MOST.min(length);
        if !sizes.contains(&head.file_bytes) || !head.file_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(wrong("the file's length is impossible"));
        }
        Ok(head)
    }
}

fn sum_of(secret: &Secret, block: &[u8]) -> u32 {
    let front = block.get(..h::SUM).unwrap_or_default();
    of_head(secret, front, block.get(h::LOG_ID..).unwrap_or_default())
}
