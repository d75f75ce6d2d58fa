fn main() {
    let name = std::env::args().nth(1).unwrap();
    let seed = std::env::args().nth(2).map_or(42, |seed| seed.parse().unwrap());
    let e = fragmend_lab::experiments::named(&name).unwrap();
    let (report, plots) = fragmend_lab::run::run_one(e, seed);
    for r in report.rows {
        println!(
            "{:45} {:8} {:>10} {:>13.7} {}",
            r.name,
            r.unit,
            r.paper.map_or("-".into(), |p| format!("{p:.7}")),
            r.ours,
            if r.within { "" } else { "OUT" }
        );
        if let Some(reason) = r.reason {
            println!("    {reason}");
        }
    }
    for p in plots {
        p.draw(std::path::Path::new("/tmp")).unwrap();
    }
}
