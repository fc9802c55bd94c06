//! Rows of CSV (RFC 4180, with `\n` at the end of a row) that a spreadsheet never takes for formulas.
//!
//! A cell that begins with a sign that a formula or a command can begin with gets an apostrophe in front, and so does one that
//! begins with an apostrophe: so that [`read`] gets every cell as it was.

use std::io::{self, BufRead};

/// First characters of formulas, also in full width. Spreadsheets skip blanks before them.
const BEGINS: [char; 13] = ['=', '+', '-', '@', '\t', '\r', '\n', ' ', '\'', '＝', '＋', '－', '＠'];

/// Most bytes of a row.
const ROW_BYTES_MAX: usize = 64 << 20;

/// A row with its line end.
pub(super) fn row<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let mut row = String::new();
    for (number, cell) in cells.enumerate() {
        if number > 0 {
            row.push(',');
        }
        let mark = if cell.starts_with(BEGINS) { "'" } else { "" };
        match cell.contains(['"', ',', '\n', '\r', ';', '\t']) {
            true => row.extend(["\"", mark, &cell.replace('"', "\"\""), "\""]),
            false => row.extend([mark, cell]),
        }
    }
    row.push('\n');
    row
}

/// A row of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CsvRow {
    Cells(Vec<String>),
    /// The bytes are not a valid row; why.
    Broken(String),
    End,
}

/// Reads the next row.
pub(super) fn read(input: &mut impl BufRead) -> io::Result<CsvRow> {
    let (mut text, mut marks) = (Vec::new(), 0);
    loop {
        let (from, room) = (text.len(), (ROW_BYTES_MAX - text.len()) as u64);
        if room == 0 {
            return Ok(CsvRow::Broken("it is too long".to_owned()));
        }
        if io::Read::take(&mut *input, room).read_until(b'\n', &mut text)? == 0 {
            return Ok(if from == 0 { CsvRow::End } else { CsvRow::Broken("it has no end".to_owned()) });
        }
        marks += memchr::memchr_iter(b'"', &text[from..]).count();
        // A line break between quotation marks belongs to a cell.
        if marks % 2 == 0 && text.ends_with(b"\n") {
            break;
        }
    }
    text.pop();
    let Ok(text) = String::from_utf8(text) else { return Ok(CsvRow::Broken("it is not UTF-8".to_owned())) };
    Ok(cells(&text).map_or_else(|| CsvRow::Broken("its quotation marks do not match".to_owned()), CsvRow::Cells))
}

fn cells(text: &str) -> Option<Vec<String>> {
    let (mut cells, mut rest) = (Vec::new(), text);
    loop {
        let (cell, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut end = 0;
                // A doubled mark stands for one.
                loop {
                    end += quoted[end..].find('"')?;
                    match quoted[end + 1..].starts_with('"') {
                        true => end += 2,
                        false => break,
                    }
                }
                (quoted[..end].replace("\"\"", "\""), &quoted[end + 1..])
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        cells.push(cell.strip_prefix('\'').map_or(cell.clone(), str::to_owned));
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(cells),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(text: &str) -> Vec<CsvRow> {
        let mut input = text.as_bytes();
        let mut rows = Vec::new();
        loop {
            rows.push(read(&mut input).expect("memory can be read"));
            if matches!(rows.last(), Some(CsvRow::End)) {
                return rows;
            }
        }
    }

    #[test]
    fn formulas_get_an_apostrophe() {
        let check = |cell: &str, expect: &str| assert_eq!(row([cell].into_iter()), format!("{expect}\n"), "{cell:?}");
        check("=1+1", "'=1+1");
        check("+1", "'+1");
        check("-1", "'-1");
        check("@SUM(A1)", "'@SUM(A1)");
        check("'x", "''x");
        check("\t=1", "\"'\t=1\"");
        check("\n=1", "\"'\n=1\"");
        check(" =1", "' =1");
        check("＝1", "'＝1");
        check("=a,\"b\"", "\"'=a,\"\"b\"\"\"");
        check("a=1", "a=1");
    }

    #[test]
    fn broken_rows_are_told() {
        let broken = |why: &str| CsvRow::Broken(why.to_owned());
        assert_eq!(read_all("a,b"), [broken("it has no end"), CsvRow::End]);
        assert_eq!(read_all("\"a\n"), [broken("it has no end"), CsvRow::End]);
        assert_eq!(read_all("\"a\"b\"\"\n")[0], broken("its quotation marks do not match"));
    }

    proptest! {
        #[test]
        fn cells_are_read_as_they_were(cells in proptest::collection::vec("[a'\"=+@,\n\r\t;-]{0,6}", 1..5)) {
            let text = row(cells.iter().map(String::as_str));
            for cell in super::cells(text.trim_end_matches('\n')).into_iter().flatten() {
                prop_assert!(cells.contains(&cell));
            }
            prop_assert_eq!(read_all(&(text.clone() + &text)), [CsvRow::Cells(cells.clone()), CsvRow::Cells(cells), CsvRow::End]);
        }

        #[test]
        fn no_cell_begins_a_formula(cell in "[=+@\t\r\n '\"a-]{1,6}") {
            let text = row([cell.as_str()].into_iter());
            let shown = text.strip_prefix('"').unwrap_or(&text);
            prop_assert!(!shown.starts_with(['=', '+', '-', '@', '\t', '\r', ' ']) , "{text:?}");
        }
    }
}
