//! The recorder works in a static binary, in which libbpf and libelf are linked with other libraries than elsewhere, and the
//! kernel side is compiled by another compiler; and from what it has recorded the binary makes a plan.

use fragmend_testbed::fragment::{FRAGPICKER_EXTENTS, interleaved};
use fragmend_testbed::image::Image;
use fragmend_testbed::packages::fragmend;
use fragmend_testbed::process::{Running, finish, run};
use fragmend_testbed::tools::WATCHING;
use serde_json::Value;
use std::env::consts::ARCH;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

#[test]
fn loop_a_static_binary_records_and_plans() {
    let image = Image::ext4(256 * MIB);
    // Costs are guessed as those of a disk, whatever the one under the image is.
    image.set_queue("rotational", "1");
    let file = image.path().join("file");
    interleaved(&file, 8 * MIB, &FRAGPICKER_EXTENTS, true).unwrap();
    image.sync();

    let trace = image.scratch().join("trace.parquet");
    let mut command = fragmend(ARCH);
    command.args(["record", "--json", "-o"]).arg(&trace).arg(image.path());
    let recorder = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let recorder = recorder.wait_until_it_says(WATCHING);
    let of = format!("if={}", file.display());
    run("dd", [&*of, "of=/dev/null", "bs=128k", "iflag=direct"]);
    recorder.signal(rustix::process::Signal::INT);
    let recorded: Value = serde_json::from_str(&recorder.wait().expect(&[0])).unwrap();
    assert_eq!(recorded["totals"]["read_bytes"], 8 * MIB, "{recorded}");

    let path = image.scratch().join("plan.json");
    let mut plan = fragmend(ARCH);
    plan.args(["plan", "-t"]).arg(&trace).arg("-o").arg(&path).arg(image.path());
    finish(&mut plan).expect(&[0]);
    let plan: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(plan["files"][0]["size"], 8 * MIB, "{plan}");
}
