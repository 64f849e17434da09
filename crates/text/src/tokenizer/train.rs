//! Trains the three kinds of tokenizer. Each is a BPE model, so that `tokenizer.json` is a standard file.

use std::collections::BTreeSet;

use tokenizers::decoders::fuse::Fuse;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use super::{END_OF_TEXT, TokenizerConfig};
use crate::TextError;
use crate::byte_level::byte_level_alphabet;
use crate::chunks::{CHUNK_BYTES, chunks};
use crate::error::MAX_VOCABULARY;

/// A pair that occurs only once is noise.
const MIN_PAIR_COUNT: u64 = 2;

pub(super) fn train(
    config: &TokenizerConfig,
    documents: &[String],
) -> Result<Tokenizer, TextError> {
    match *config {
        TokenizerConfig::Characters {} => characters(documents),
        TokenizerConfig::Bytes {} => bytes(),
        TokenizerConfig::Bpe { vocabulary } => bpe(vocabulary, documents),
    }
}

fn characters(documents: &[String]) -> Result<Tokenizer, TextError> {
    let distinct: BTreeSet<char> = documents
        .iter()
        .flat_map(|document| document.chars())
        .collect();
    if distinct.is_empty() {
        return Err(TextError::EmptyCorpus);
    }
    let mut tokenizer = Tokenizer::new(bpe_without_merges(distinct)?);
    tokenizer.with_decoder(Some(Fuse::new()));
    Ok(tokenizer)
}

fn bytes() -> Result<Tokenizer, TextError> {
    let mut tokenizer = Tokenizer::new(bpe_without_merges(byte_level_alphabet())?);
    let byte_level = ByteLevel::new(false, false, false);
    tokenizer
        .with_pre_tokenizer(Some(byte_level))
        .with_decoder(Some(byte_level));
    tokenizer
        .add_special_tokens([end_of_text()])
        .map_err(TextError::tokenizer)?;
    Ok(tokenizer)
}

fn bpe(vocabulary: usize, documents: &[String]) -> Result<Tokenizer, TextError> {
    if !(257..=MAX_VOCABULARY).contains(&vocabulary) {
        return Err(TextError::Vocabulary { vocabulary });
    }
    if documents.iter().all(|document| document.is_empty()) {
        return Err(TextError::EmptyCorpus);
    }
    let mut tokenizer = Tokenizer::new(BPE::default());
    let byte_level = ByteLevel::new(false, false, true);
    tokenizer
        .with_pre_tokenizer(Some(byte_level))
        .with_decoder(Some(byte_level));
    let trainer = BpeTrainer::builder()
        .vocab_size(vocabulary)
        .min_frequency(MIN_PAIR_COUNT)
        .show_progress(false)
        .special_tokens(vec![end_of_text()])
        .initial_alphabet(byte_level_alphabet().into_iter().collect())
        .build();
    // The separator is not text to learn from, but files of many documents often contain it.
    let pieces = documents
        .iter()
        .flat_map(|document| document.split(END_OF_TEXT))
        .flat_map(|text| chunks(text, CHUNK_BYTES));
    tokenizer
        .train(&mut TrainerWrapper::from(trainer), pieces)
        .map_err(TextError::tokenizer)?;
    Ok(tokenizer)
}

/// A BPE model without merges: one token per symbol, in order.
fn bpe_without_merges(symbols: impl IntoIterator<Item = char>) -> Result<BPE, TextError> {
    let vocabulary: Vocab = symbols.into_iter().map(String::from).zip(0u32..).collect();
    BPE::builder()
        .vocab_and_merges(vocabulary, Vec::new())
        .build()
        .map_err(TextError::tokenizer)
}

fn end_of_text() -> AddedToken {
    AddedToken::from(END_OF_TEXT, true)
}
