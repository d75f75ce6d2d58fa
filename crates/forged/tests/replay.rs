//! Replays every input of the corpus to its target: each once broke a promise or reached new code.
//! Some must be accepted, at least those named `good-*`, so that not only refusals are tested.

use fragmend_forged::TARGETS;
use std::path::Path;

// One test, because memory is counted for all threads together.
#[test]
fn the_corpus_breaks_no_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in &TARGETS {
        let dir = corpus.join(target.name);
        let mut names: Vec<_> = std::fs::read_dir(&dir)
            .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
            .collect();
        names.sort();
        let mut taken = 0;
        for name in &names {
            let input = std::fs::read(dir.join(name)).expect("an input");
            // Only the panic's message names the input.
            eprintln!("{}/{name}", target.name);
            let is_taken = target.check(&input);
            taken += usize::from(is_taken);
            assert!(is_taken || !name.starts_with("good-"), "{}/{name} is refused", target.name);
        }
        println!("{}: {} inputs, {taken} taken", target.name, names.len());
        assert!(taken > 0, "{}: nothing in its corpus is taken", target.name);
    }
    let listed = std::fs::read_dir(&corpus).expect("the corpus").count();
    assert_eq!(listed, TARGETS.len(), "a corpus without a target");
}
