//! Numbers in radix 64, with digits that sort by value.

/// Digits in byte order, so that numbers of equal length sort as texts.
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// Appends the last `digits` digits of `number`, with leading zeros.
pub fn push(text: &mut String, number: u64, digits: usize) {
    for place in (0..digits).rev() {
        let digit = number.checked_shr(6 * place as u32).unwrap_or(0) & 63;
        text.push(char::from(DIGITS[digit as usize]));
    }
}

/// Decodes the digits at the beginning of the text, up to the first other character. `None`: there are no
/// digits, or more than ten.
pub fn decode(text: &str) -> Option<u64> {
    let digit = |byte: u8| DIGITS.binary_search(&byte).ok();
    let digits: Vec<usize> = text.bytes().map_while(digit).collect();
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    Some(digits.into_iter().fold(0, |number, digit| (number << 6) | digit as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: u64, digits: usize) -> String {
        let mut text = String::new();
        push(&mut text, number, digits);
        text
    }

    #[test]
    fn digits_are_sorted_so_that_numbers_sort_as_texts() {
        assert!(DIGITS.is_sorted());
        let numbers = [0, 1, 9, 10, 35, 36, 37, 62, 63, 64, 4095, 4096, 1_763_200_000_000];
        assert!(numbers.map(|number| text(number, 7)).is_sorted());
    }

    #[test]
    fn a_number_is_read_back_up_to_the_first_other_character() {
        for number in [0, 63, 64, 1_763_200_000_000] {
            assert_eq!(decode(&format!("{}-rest", text(number, 7))), Some(number));
        }
        assert_eq!(decode("-x"), None);
        assert_eq!(decode("00000000000"), None);
        assert_eq!(text(64 * 64 * 64 + 5, 3), "005", "only the last digits are written");
    }
}
