use super::*;

fn of(sql: &str) -> Candidates {
    Candidates::of(sql)
}

fn anything() -> Candidates {
    Candidates::default()
}

fn ids(ids: &[u64]) -> Candidates {
    Candidates { ids: Some(ids.to_vec()), ..anything() }
}

fn names(names: &[&str]) -> Candidates {
    let names = names.iter().map(|name| Box::from(*name)).collect();
    Candidates { names: Some(NameMatch::OneOf(names)), ..anything() }
}

#[test]
fn conditions_joined_by_and_narrow_the_search() {
    assert_eq!(of("SELECT * FROM jobs WHERE jobID = 5;"), ids(&[5]));
    assert_eq!(of("select * from jobs where JOBID == 5"), ids(&[5]));
    assert_eq!(of("SELECT * FROM jobs AS j WHERE j.jobID IN (5, 6) ORDER BY name;"), ids(&[5, 6]));
    assert_eq!(of("SELECT count(*) FROM jobs WHERE name='a;b' AND created < '2024';"), names(&["a;b"]));
    assert_eq!(of("SELECT 1 FROM jobs WHERE (name = 'it''s') AND priority+1 > 3;"), names(&["it's"]));
    assert_eq!(of("DELETE FROM jobs WHERE ((jobID = 7));"), ids(&[7]));
    assert_eq!(of("UPDATE jobs SET data='{}' WHERE jobID=7 -- AND jobID=8\n;"), ids(&[7]));
    let glob = Candidates { names: Some(NameMatch::glob("foo*")), ..anything() };
    assert_eq!(of("SELECT * FROM jobs WHERE name GLOB 'foo*' LIMIT 3;"), glob);
    let failed = Candidates { states: Some(vec![StateName::Failed]), ..names(&["a"]) };
    assert_eq!(of("DELETE FROM \"jobs\" WHERE state='FAILED' AND \"name\"='a';"), failed);
}

#[test]
fn what_is_not_understood_narrows_nothing() {
    for sql in [
        "SELECT * FROM jobs;",
        "SELECT * FROM jobs WHERE jobID = 5 OR name = 'x';",
        "SELECT * FROM jobs WHERE NOT jobID = 5;",
        "SELECT * FROM jobs WHERE jobID != 5;",
        "SELECT * FROM jobs WHERE jobID = -5;",
        "SELECT * FROM jobs WHERE jobID = 5 + 1;",
        "SELECT * FROM jobs WHERE jobID = 5.0;",
        "SELECT * FROM jobs WHERE name = 'x' COLLATE NOCASE;",
        "SELECT * FROM jobs WHERE name = other;",
        "SELECT * FROM jobs WHERE name = \"foo\";",
        "SELECT * FROM jobs WHERE jobID BETWEEN 1 AND jobID = 5;",
        "SELECT * FROM jobs WHERE CASE WHEN 1 AND jobID = 5 THEN 1 END;",
        "SELECT * FROM jobs a, jobs b WHERE a.jobID = 5;",
        "SELECT * FROM jobs a JOIN jobs b WHERE a.jobID = 5;",
        "SELECT * FROM jobs WHERE jobID IN (SELECT parentJobID FROM jobs WHERE jobID = 5);",
        "SELECT (SELECT 1 FROM jobs) FROM jobs WHERE jobID = 5;",
        "SELECT * FROM jobs WHERE jobID = 5 UNION ALL SELECT * FROM jobs;",
        "WITH x AS (SELECT 1) SELECT * FROM jobs WHERE jobID = 5;",
        "UPDATE jobs SET data = o.data FROM other o WHERE jobID = 5;",
        "SELECT * FROM jobs WHERE state = 'NONSENSE';",
        "SELECT * FROM jobs WHERE jobID IN ();",
        "SELECT * FROM jobs WHERE jobID IN (1, 2",
        "SELECT * FROM jobs WHERE jobID = 'unfinished;",
        "SELECT '/*' FROM jobs /* WHERE jobID = 5;",
    ] {
        assert_eq!(of(sql), anything(), "{sql}");
    }
}

#[test]
fn texts_and_comments_hide_what_they_hold() {
    assert_eq!(of("SELECT * FROM jobs WHERE name = 'x' /* OR 1 */ ;"), names(&["x"]));
    assert_eq!(of("SELECT ' or ' FROM jobs WHERE jobID = 5;"), ids(&[5]));
    assert_eq!(of("SELECT * FROM jobs WHERE data = 'WHERE jobID = 5' AND jobID = 6;"), ids(&[6]));
}

#[test]
fn of_two_conditions_on_one_column_one_is_used() {
    assert_eq!(of("SELECT * FROM jobs WHERE jobID = 5 AND jobID = 6;"), ids(&[5]));
}
