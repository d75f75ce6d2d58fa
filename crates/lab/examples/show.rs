fn main() {
    let name = std::env::args().nth(1).unwrap();
    let e = fragmend_lab::experiments::named(&name).unwrap();
    let (report, plots) = fragmend_lab::run::run_one(e, 42);
    for r in report.rows {
        println!(
            "{:45} {:8} {:>9} {:>9.1} {}",
            r.name,
            r.unit,
            r.paper.map_or("-".into(), |p| format!("{p:.1}")),
            r.ours,
            if r.within { "" } else { "OUT" }
        );
    }
    for p in plots {
        p.draw(std::path::Path::new("/tmp")).unwrap();
    }
}
