#!/usr/bin/env python3
"""Tests that structure.py finds each kind of fault, and accepts right crates."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from structure import Crate, long_lines, lost_paths, main

ORDER = "//! A crate.\n//!\n//! Rooms, lowest first: low\n//! high\n//!\n"


class Structure(unittest.TestCase):
    """Each test writes a small crate of two rooms and looks at its faults."""

    def faults(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            src = pathlib.Path(folder) / "src"
            for name, text in {"lib": ORDER, "low": "", "high": "", **files}.items():
                path = src / (name.replace("__", "/") + ".rs")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(Crate(pathlib.Path(folder)).faults())

    def assert_one(self, faults, *words):
        self.assertEqual(len(faults), 1, faults)
        for word in words:
            self.assertIn(word, faults[0])

    def test_imports_that_lead_downwards_pass(self):
        self.assertEqual(self.faults(high="use crate::low::{self, Thing as T};"), [])

    def test_a_circle_is_found_with_its_files_and_imports(self):
        faults = self.faults(high__a="use super::b::{x::Y, B};", high__b="fn f() { super::a::g() }")
        self.assert_one(faults, "circle", "high/a.rs: super::b", "high/b.rs: super::a::g")

    def test_a_parent_and_its_child_make_a_circle_if_both_import(self):
        child = "use super::Parent;"
        self.assertEqual(self.faults(high="mod a;\nstruct Parent;", high__a=child), [])
        faults = self.faults(high="mod a;\nuse a::A;\nstruct Parent(A);", high__a=child)
        self.assert_one(faults, "circle", "high.rs: a::A", "high/a.rs: super::Parent")

    def test_an_upward_import_is_found(self):
        self.assert_one(self.faults(low="fn f() { crate::high::g() }"), "upwards", "crate::high::g")

    def test_an_import_from_the_root_leads_upwards_unless_it_is_a_reexport(self):
        faults = self.faults(lib=ORDER + "pub struct Root;", low="use crate::Root;")
        self.assert_one(faults, "lib.rs")
        lib = ORDER + "pub use low::Thing;"
        self.assertEqual(self.faults(lib=lib, high="use crate::Thing;"), [])
        faults = self.faults(lib=lib.replace("low::", "high::"), low="use crate::Thing;")
        self.assert_one(faults, "high.rs")

    def test_a_reexport_is_no_import_unless_the_file_uses_the_name(self):
        child = "use super::Parent;\npub fn help() {}"
        parent = "mod help;\npub use help::help;\npub struct Parent;"
        self.assertEqual(self.faults(high=parent, high__help=child), [])
        faults = self.faults(high=parent + "\nfn f() { help() }", high__help=child)
        self.assert_one(faults, "circle", "help::help")

    def test_a_room_that_is_not_listed_is_found(self):
        self.assert_one(self.faults(attic=""), "doesn't name the room `attic`")

    def test_a_listed_room_that_is_not_there_is_found(self):
        self.assert_one(self.faults(lib=ORDER.replace("high", "high cellar")), "cellar")

    def test_a_crate_that_is_not_there_is_wrong_usage(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(main(["shmm"]), 2)
        self.assertIn("shmm", said.getvalue())

    def test_comments_strings_and_tests_are_no_imports(self):
        low = """//! See [`crate::high`].
            const S: &str = "crate::high::x"; // crate::high::x
            #[cfg(test)] use crate::high::X;
            #[cfg(test)] mod tests { use crate::high::X; }
            mod inner { use super::S; }"""
        self.assertEqual(self.faults(low=low, low__tests="use crate::high::X;"), [])

    def test_long_prose_is_found_and_pictures_tables_and_links_are_not(self):
        long = "word " * 25
        fine = f"//! ```text\n//! {long}\n//! ```\n//! | {long} |\n// [link](https://{long})\n"
        code = f'const S: &str = "https://x {long}";\n'
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.rs"
            path.write_text(fine + code + f"/// {long}\n")
            self.assert_one(list(long_lines(path)), "a.rs:7")
            path = pathlib.Path(folder) / "a.md"
            path.write_text(f"    {long}\n| {long} |\n{long}\n")
            self.assert_one(list(long_lines(path)), "a.md:3")

    def test_a_page_names_only_files_that_are_there(self):
        names = ["docs/page.md", "crates/a/src/lib.rs"]
        fine = "`src/lib.rs` `crates/a/src` [code](../crates/a/src/lib.rs#x) `a/b` <https://x.rs/y> `a/X/c.rs`\n"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            for text, word in (("`b/lib.rs`", "b/lib.rs"), ("`crates/a/other`", "a/other")):
                path.write_text(fine.replace("../", "") + text)
                faults = list(lost_paths(path, [*names, str(path.parent / names[1])]))
                self.assert_one(faults, "page.md:2", word)
            path.write_text("[gone](gone.md)")
            self.assert_one(list(lost_paths(path, names)), "page.md:1", "gone.md isn't there")


if __name__ == "__main__":
    unittest.main()
