//! `Glob` against the GLOB operator of the bundled SQLite.

use proptest::prelude::*;
use rusqlite::Connection;
use windlass_core::matching::{Glob, NameMatch};

/// Few letters, so that texts match; every special character; characters of one to four bytes in UTF-8; and
/// noncharacters, which other parts of SQLite rewrite.
const TEXT_ALPHABET: &str = "[abcABü日𝄞\\]\\^\\-*?\\[\u{FFFD}\u{FFFE}]";
const PATTERN_PIECES: &str = "(\\*|\\?|\\[|\\]|\\^|-|a|b|c|A|ü|日|𝄞|\u{FFFE}|\\[\\^|\\[a-c\\]|\\[\\]|-\\])";

thread_local! {
    static SQLITE: Connection = Connection::open_in_memory().unwrap();
}

fn sqlite_matches(pattern: &str, text: &str) -> bool {
    SQLITE.with(|sqlite| {
        let mut statement = sqlite.prepare_cached("SELECT ?1 GLOB ?2").unwrap();
        statement.query_row((text, pattern), |row| row.get(0)).unwrap()
    })
}

fn check(pattern: &str, text: &str) -> Result<(), TestCaseError> {
    let expected = sqlite_matches(pattern, text);
    let glob = Glob::new(pattern);
    prop_assert_eq!(glob.matches(text), expected, "{:?} GLOB {:?}", text, pattern);
    prop_assert_eq!(NameMatch::glob(pattern).matches(text), expected, "{:?} as a name", pattern);
    prop_assert!(!expected || text.starts_with(glob.literal_prefix()), "prefix of {:?}", pattern);
    prop_assert!(expected || !glob.is_everything(), "{:?} is everything", pattern);
    Ok(())
}

/// Derives a text from the pattern: such texts match far more often than random ones.
fn text_like(pattern: &str, filler: &str) -> String {
    pattern.replace('*', filler).replace('?', "ü").replace(['[', ']', '^'], "")
}

fn some_of(piece: &str, pieces_max: usize) -> impl Strategy<Value = String> {
    prop::string::string_regex(&format!("{piece}{{0,{pieces_max}}}")).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn random_patterns_agree(
        pattern in some_of(PATTERN_PIECES, 8),
        text in some_of(TEXT_ALPHABET, 6),
    ) {
        check(&pattern, &text)?;
        check(&pattern, &text_like(&pattern, &text))?;
        check(&pattern, "")?;
    }

    #[test]
    fn sets_agree_on_every_character(inside in "[a-e\\]\\^\\-\\[*?]{0,7}", text in "[a-f\\]\\^\\-\\[*]") {
        check(&format!("[{inside}]"), &text)?;
        check(&format!("[{inside}"), &text)?;
        check(&format!("*[{inside}]*"), &format!("x{text}y"))?;
    }

    #[test]
    fn many_stars_agree(pattern in "(\\*a|\\*b|\\*|\\?|a|\\[ab\\]){0,12}", text in "[ab]{0,16}") {
        check(&pattern, &text)?;
    }
}

#[test]
fn a_nul_ends_pattern_and_text_as_in_sqlite() {
    for (pattern, text) in [("a\0b", "a"), ("a*\0b", "ax\0y"), ("a?", "a\0"), ("*\0", "x"), ("[a\0]", "a")] {
        assert_eq!(Glob::new(pattern).matches(text), sqlite_matches(pattern, text), "{pattern:?} {text:?}");
    }
}
