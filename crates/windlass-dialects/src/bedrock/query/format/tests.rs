use super::*;

fn table() -> Table {
    let text = |text: &str| Value::Text(text.to_owned());
    Table {
        headers: ["a", "name", "n"].map(str::to_owned).to_vec(),
        rows: vec![
            vec![Value::Integer(1), text("x y"), Value::Null],
            vec![Value::Integer(-2), text("it's \"q\""), Value::Real(1.5)],
            vec![Value::Integer(3), text(""), text("a|b,c")],
            vec![Value::Integer(4), text("a/b"), text("é")],
        ],
    }
}

fn cli(flags: &str) -> String {
    String::from_utf8(Format::Cli(Cli::parse(flags).unwrap()).write(&table())).unwrap()
}

#[test]
fn every_mode_looks_as_it_does_on_the_command_line() {
    assert_eq!(cli(""), "a|name|n\n1|x y|\n-2|it's \"q\"|1.5\n3||a|b,c\n4|a/b|é\n");
    assert_eq!(
        cli("-csv"),
        "a,name,n\n1,\"x y\",\n-2,\"it's \"\"q\"\"\",1.5\n3,\"\",\"a|b,c\"\n4,a/b,\"é\"\n"
    );
    assert_eq!(
        cli("-quote"),
        "'a','name','n'\n1,'x y',NULL\n-2,'it''s \"q\"',1.5\n3,'','a|b,c'\n4,'a/b','é'\n"
    );
    assert_eq!(
        cli("-json"),
        "[{\"a\":1,\"name\":\"x y\",\"n\":null},\n{\"a\":-2,\"name\":\"it's \\\"q\\\"\",\"n\":1.5},\n\
         {\"a\":3,\"name\":\"\",\"n\":\"a|b,c\"},\n{\"a\":4,\"name\":\"a/b\",\"n\":\"é\"}]\n"
    );
    assert_eq!(
        cli("-line"),
        "    a = 1\n name = x y\n    n = \n\n    a = -2\n name = it's \"q\"\n    n = 1.5\n\n    a = 3\n name = \n    \
         n = a|b,c\n\n    a = 4\n name = a/b\n    n = é\n"
    );
}

#[test]
fn columns_are_aligned() {
    let expected = "\
a   name      n    \n\
--  --------  -----\n\
1   x y            \n\
-2  it's \"q\"  1.5  \n\
3             a|b,c\n\
4   a/b       é    \n";
    assert_eq!(cli("-column"), expected);
    let expected = "\
| a  |   name   |   n   |
|----|----------|-------|
| 1  | x y      |       |
| -2 | it's \"q\" | 1.5   |
| 3  |          | a|b,c |
| 4  | a/b      | é     |
";
    assert_eq!(cli("-markdown"), expected);
    let expected = "\
<TR>
<TH>a
<TH>name
<TH>n
</TR>
<TR>
<TD>1
<TD>x y
<TD>null
</TR>
<TR>
<TD>-2
<TD>it&#39;s &quot;q&quot;
<TD>1.5
</TR>
";
    assert!(cli("-html").starts_with(expected), "{}", cli("-html"));
    assert!(cli("-html -noheader").starts_with("<TR>\n<TD>1\n"));
    let expected = "\
┌────┬──────────┬───────┐
│ a  │   name   │   n   │
├────┼──────────┼───────┤
│ 1  │ x y      │       │
│ -2 │ it's \"q\" │ 1.5   │
│ 3  │          │ a|b,c │
│ 4  │ a/b      │ é     │
└────┴──────────┴───────┘
";
    assert_eq!(cli("-box"), expected);
}

#[test]
fn flags_change_separator_null_and_header() {
    assert_eq!(cli("-separator ; -nullvalue NIL -noheader").lines().next(), Some("1;x y;NIL"));
    assert_eq!(cli("-separator ' | '").lines().next(), Some("a | name | n"));
    assert_eq!(cli("--csv -noheader").lines().next(), Some("1,\"x y\","));
    assert_eq!(Cli::parse("-ascii"), Err("unknown flag -ascii".to_owned()));
    assert_eq!(Cli::parse("-separator"), Err("-separator requires a value".to_owned()));
    assert_eq!(Cli::parse("-separator 'x"), Err("unterminated quote in the flags".to_owned()));
}

#[test]
fn no_rows_print_nothing_on_the_command_line_and_an_empty_list_elsewhere() {
    let table = Table { headers: vec!["a".to_owned()], rows: vec![] };
    for flags in ["", "-csv", "-json", "-box"] {
        assert_eq!(Format::Cli(Cli::parse(flags).unwrap()).write(&table), b"");
    }
    assert_eq!(Format::Arrays(Typing::Plain).write(&table), b"[]");
    assert_eq!(Format::HeadersAndRows(Typing::Guessed).write(&table), b"{\"headers\":[\"a\"],\"rows\":[]}");
}

#[test]
fn plain_values_keep_their_types_and_guessed_ones_look_at_the_text() {
    let row = ["123", "TRUE", "null", "[1]", "{\"a\":1}", "1.5", "007", "a/b", "{\"a\":"];
    let table = Table {
        headers: vec![],
        rows: vec![row.iter().map(|text| Value::Text((*text).to_owned())).collect()],
    };
    let written = |typing| String::from_utf8(Format::Arrays(typing).write(&table)).unwrap();
    assert_eq!(
        written(Typing::Plain),
        r#"[["123","TRUE","null","[1]",{"a":1},"1.5","007","a\/b","{\"a\":"]]"#
    );
    assert_eq!(written(Typing::Guessed), r#"[[123,true,null,[1],{"a":1},"1.5","007","a\/b","{\"a\":"]]"#);
}

#[test]
fn real_numbers_look_as_sqlite_shows_them_where_few_digits_say_it() {
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    for number in
        [0.0, 1.5, -2.0, 0.1 + 0.2, 1e15, 1e16, 1e17, 123456789012345.0, 1e-4, 1e-5, 1.25e100, -3.5e-20]
    {
        let expected: String =
            sqlite.query_row("SELECT CAST(?1 AS TEXT)", [number], |row| row.get(0)).unwrap();
        assert_eq!(real(number), expected);
    }
}
