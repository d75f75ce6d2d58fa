//! The experiments, one module for each.

mod d_fig11;
pub(crate) mod d_fig12;
mod d_fig3;
mod d_fig4_6;
mod d_fig7;
mod d_fig8;
mod f_discard;
mod f_fig10;
mod f_fig11;
mod f_fig12;
mod f_fig4_table1;
mod f_fig8_9;
mod f_sqlite;
mod i_example;
mod i_fig11;
mod i_fig3_4;
mod indef;
mod j_fig7;
mod j_fig8;
mod j_power;
mod janusd_file;
mod l_fig2;
mod l_fig6;
mod l_fig7_table2;
mod l_table1;
mod lfs;
mod phone;

use crate::experiment::Experiment;

/// All experiments, in the order of the papers.
pub static ALL: [&Experiment; 27] = [
    &d_fig3::EXPERIMENT,
    &d_fig4_6::EXPERIMENT,
    &d_fig7::EXPERIMENT,
    &d_fig8::EXPERIMENT,
    &d_fig11::EXPERIMENT,
    &d_fig12::EXPERIMENT,
    &f_fig4_table1::EXPERIMENT,
    &f_fig8_9::EXPERIMENT,
    &f_fig10::EXPERIMENT,
    &f_sqlite::EXPERIMENT,
    &f_fig11::EXPERIMENT,
    &f_fig12::EXPERIMENT,
    &f_discard::EXPERIMENT,
    &i_example::EXPERIMENT,
    &i_fig3_4::EXPERIMENT,
    &i_fig11::EXPERIMENT,
    &l_fig2::EXPERIMENT,
    &l_table1::EXPERIMENT,
    &l_fig6::EXPERIMENT,
    &l_fig7_table2::EXPERIMENT,
    &phone::fig2_5::EXPERIMENT,
    &phone::fig6::EXPERIMENT,
    &j_fig7::EXPERIMENT,
    &j_fig8::EXPERIMENT,
    &phone::fig15_17::EXPERIMENT,
    &phone::table4::EXPERIMENT,
    &j_power::EXPERIMENT,
];

/// Those that need a few seconds at most.
pub fn short() -> impl Iterator<Item = &'static Experiment> {
    ALL.into_iter().filter(|experiment| !experiment.is_long)
}

/// The experiment of this name, in upper or lower case.
pub fn named(name: &str) -> Option<&'static Experiment> {
    ALL.into_iter().find(|experiment| experiment.name.eq_ignore_ascii_case(name))
}
