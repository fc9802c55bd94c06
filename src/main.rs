//! The binary: everything it does is in the library.

fn main() {
    std::process::exit(codex_shim::main());
}
