//! The tests of the simulated file systems. They are one program, because each program with such a file system in it is built
//! with all of its code, which is generic and optimized.

mod ageing;
mod close;
mod cow;
mod cow_cuts;
mod harness;
mod hints;
mod hostile;
mod inplace;
mod inplace_cuts;
mod layouts;
mod reads;
mod remaps;
mod segments;
mod support;
