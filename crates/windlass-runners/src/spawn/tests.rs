use super::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::ChildStdout;

const INSIDE: &str = "spawn::tests::inside";

/// This test program, with arguments that make it run [`inside`].
fn program() -> GuestProgram {
    let args = ["--exact", INSIDE, "--ignored", "--nocapture", "--test-threads=1"];
    GuestProgram { path: std::env::current_exe().unwrap(), args: args.map(str::to_owned).to_vec() }
}

async fn hear(lines: &mut Lines<BufReader<ChildStdout>>, wanted: &str) -> bool {
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.ends_with(wanted) {
            return true;
        }
    }
    false
}

/// Threads of the runtime end in the same way when they are idle.
#[tokio::test]
async fn a_process_lives_on_when_the_thread_that_asked_for_it_ends() {
    let runtime = Handle::current();
    let asking = std::thread::spawn(move || {
        let child = runtime.block_on(async {
            let mut child = start(&program(), Vec::new()).await.unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(hear(&mut lines, "it dies with its parent").await);
            (child, lines)
        });
        (child, rustix::thread::gettid())
    });
    while !asking.is_finished() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let ((mut child, mut lines), thread) = asking.join().unwrap();
    let thread = format!("/proc/self/task/{}", thread.as_raw_nonzero());
    while std::path::Path::new(&thread).exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let mut orders = child.stdin.take().unwrap();
    // If the process is gone, the reply below is missing.
    let _ = orders.write_all(b"go on\n").await;
    assert!(hear(&mut lines, "it goes on").await, "it was ended: {:?}", child.wait().await);
    drop(orders);
    assert!(child.wait().await.unwrap().success());
}

#[test]
#[ignore = "run by the test above in a process of its own"]
fn inside() {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    println!("it dies with its parent");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    println!("it goes on");
}
