#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report page as a file: well-formed, self-contained, small, and equal to what --json says. How
it looks and behaves in a browser is check_page.py's matter."""

import argparse
import html
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

DATA = pathlib.Path(__file__).resolve().parent.parent / "golden" / "data"
SNAPSHOTS = DATA.parent.parent / "data" / "snapshots"
WATCHED = DATA.parent.parent / "fuzz" / "corpus" / "recording_fuzz" / "command.json"
VOID = {"meta", "wbr", "br", "img", "input", "link", "hr"}
HEADROOM = ""


class Page(html.parser.HTMLParser):
    """Tags that match, ids, references, headings, tables."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.problems = [], []
        self.ids, self.references, self.attributes, self.texts = [], [], [], {}
        self.tables = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name, value in attributes.items():
            self.attributes.append((tag, name, value))
            if name == "id":
                self.ids.append(value)
            if name in ("aria-labelledby", "aria-controls", "for"):
                self.references += (value or "").split()
        if tag == "table":
            self.tables.append({"id": attributes.get("id"), "caption": False, "rows": []})
        if tag == "caption":
            self.tables[-1]["caption"] = True
        if tag == "tr":
            self.tables[-1]["rows"].append([])
        if tag in ("td", "th"):
            self.tables[-1]["rows"][-1].append(attributes)
        if tag not in VOID:
            self.open.append((tag, attributes.get("id")))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.problems.append(f"</{tag}> at {self.getpos()} closes {self.open[-1:]}")
            return
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1][1]:
            self.texts[self.open[-1][1]] = self.texts.get(self.open[-1][1], "") + data


def running(differences):
    total = 0
    for difference in differences:
        total += difference
        yield total


class Sound:
    """What holds for the page of every command; `bytes`, `text` and `page` are set."""
    quoted = set()  # addresses in a text that the page quotes

    def test_tags_match_and_ids_are_unique(self):
        self.assertTrue(self.text.startswith("<!DOCTYPE html>\n<html lang=\"en\">"))
        self.assertEqual(self.page.problems, [])
        self.assertEqual(self.page.open, [])
        self.assertEqual(len(self.page.ids), len(set(self.page.ids)))
        self.assertEqual(set(self.page.references) - set(self.page.ids), set())

    def test_nothing_is_loaded(self):
        for tag, name, value in self.page.attributes:
            self.assertNotIn(name, ("src", "srcset", "action", "background", "data"), (tag, value))
            self.assertFalse(name.startswith("on"), (tag, name))
            if name == "href":
                self.assertTrue(value.startswith("#"), value)
        addresses = set(re.findall(r"https?://[^\s\"'<>]+", self.text))
        # The name of a language, not an address that anybody asks for.
        self.assertEqual(addresses - {"http://www.w3.org/2000/svg"} - self.quoted, set())
        self.assertNotRegex(self.text, r"@import|url\((?!#)|fetch\(|XMLHttpRequest|import\(")
        self.assertIn("default-src 'none'", self.text)

    def test_is_small(self):
        self.assertLess(len(self.bytes), 1 << 20)

    def test_tables_can_be_read_aloud(self):
        self.assertGreaterEqual(len(self.page.tables), self.tables)
        for table in self.page.tables:
            self.assertTrue(table["caption"], table["id"])
            widths = {len(row) for row in table["rows"]}
            self.assertEqual(len(widths), 1, table["id"])
            for cell in table["rows"][0]:
                self.assertEqual(cell.get("scope"), "col")
            for row in table["rows"][1:]:
                self.assertEqual(row[0].get("scope"), "row")


def written(*words):
    """The JSON that a command prints, and the page that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.html"
        done = subprocess.run([HEADROOM, *words, "--json", "--html", str(path)], cwd=DATA,
                              stdout=subprocess.PIPE, check=True, timeout=60)
        return json.loads(done.stdout), path.read_bytes()


class Structure(Sound, unittest.TestCase):
    tables = 6

    @classmethod
    def setUpClass(cls):
        cls.plan, cls.bytes = written("plan", "bert-large-uncased", "--batch", "4", "--seq", "512",
                                      "--bf16", "--gpu", "RTX 4090")
        cls.text = cls.bytes.decode()
        cls.page = Page(cls.text)
        cls.data = json.loads(cls.page.texts["headroom-data"])

    def test_says_what_json_says(self):
        peak = self.data["peaks"][0]
        for total in ("allocated", "reserved", "device"):
            self.assertEqual(peak[total], self.plan["totals"][total])
        self.assertEqual(peak["components"], self.plan["peak"]["components"])
        allocated = self.data["components"][:8]
        self.assertEqual(dict(zip(allocated, peak["tree"]["t"])),
                         {name: self.plan["peak"]["components"][name] for name in allocated})
        self.assertEqual(self.data["limit"]["bytes"], self.plan["verdict"]["memory"])

    def test_chart_reaches_the_peak_and_the_phases(self):
        chart = self.data["charts"][0]
        layers = {layer["component"]: [size * chart["unit"] for size in running(layer["bytes"])]
                  for layer in chart["layers"]}
        tensors = [layers[name] for name in self.data["components"][:8] if name in layers]
        allocated = [sum(sizes) for sizes in zip(*tensors)]
        self.assertEqual(max(allocated), self.plan["totals"]["allocated"])
        self.assertEqual(allocated[chart["peak"]], self.plan["totals"]["allocated"])
        at = list(running(chart["at"]))
        self.assertEqual(at, sorted(at))
        # Every phase's own peak is among the points drawn for it.
        begin = 0
        for number, phase in enumerate(self.plan["phases"]):
            end = [to for _, to, _, _ in chart["phases"]][number]
            inside = [size for x, size in zip(at, allocated) if begin <= x <= end]
            self.assertEqual(max(inside), phase["peak"], phase["name"])
            begin = end

    def test_components_table_holds_the_bytes(self):
        sizes = {int(cell["data-v"]) for table in self.page.tables for row in table["rows"]
                 for cell in row if re.fullmatch(r"\d+", cell.get("data-v", ""))}
        wanted = {size for size in self.plan["peak"]["components"].values() if size}
        self.assertEqual(wanted - sizes, set())

    def test_the_same_plan_gives_the_same_page(self):
        with tempfile.TemporaryDirectory() as folder:
            pages = []
            for name in ("a.html", "b.html"):
                path = pathlib.Path(folder) / name
                subprocess.run([HEADROOM, "plan", "folder", "--seq", "64", "--html", str(path)],
                               cwd=DATA, stdout=subprocess.DEVNULL, check=True, timeout=60)
                pages.append(path.read_bytes())
        self.assertEqual(pages[0], pages[1])


class Explained(Sound, unittest.TestCase):
    tables = 8

    @classmethod
    def setUpClass(cls):
        cls.said, cls.bytes = written("explain", f"{SNAPSHOTS}/albert-base--b4-s512-bf16.pickle.gz")
        cls.text = cls.bytes.decode()
        cls.page = Page(cls.text)
        cls.data = json.loads(cls.page.texts["headroom-data"])

    def test_says_what_json_says(self):
        for sentence in self.said["summary"]:
            self.assertIn(html.escape(sentence), html.escape(html.unescape(self.text)))
        self.assertEqual(self.data["peaks"][0]["allocated"], self.said["totals"]["allocated"])
        self.assertIn("Largest holders at the peak, by stack", self.text)
        self.assertIn("What stays at the end of the recording", self.text)
        self.assertIn("gradient_checkpointing=True", self.text)

    def test_knows_no_device_total(self):
        self.assertNotIn("device</th>", self.text)


class Failed(Sound, unittest.TestCase):
    tables = 2
    quoted = {"https://docs.pytorch.org/docs/stable/notes/cuda.html"
              "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"}

    @classmethod
    def setUpClass(cls):
        cls.said, cls.bytes = written("explain", f"{SNAPSHOTS}/oom-gpt2.txt", "gpt2", "--batch", "4",
                                      "--seq", "1024", "--bf16")
        cls.text = cls.bytes.decode()
        cls.page = Page(cls.text)

    def test_offers_what_fit_offers(self):
        self.assertIn("What headroom fit offers", self.text)
        self.assertIn(self.said["plan"]["fit"]["best"]["command"], html.unescape(self.text))
        self.assertIn("The plan reproduces the failure.", self.text)


class Compared(Sound, unittest.TestCase):
    tables = 10

    @classmethod
    def setUpClass(cls):
        snapshot = f"{SNAPSHOTS}/albert-base--b4-s512-bf16.pickle.gz"
        cls.said, cls.bytes = written("diff", snapshot, f"{SNAPSHOTS}/oom-gpt2.pickle.gz")
        cls.text = cls.bytes.decode()
        cls.page = Page(cls.text)
        cls.data = json.loads(cls.page.texts["headroom-data"])

    def test_draws_both_on_one_scale(self):
        self.assertEqual([chart["name"] for chart in self.data["charts"]], ["A", "B"])
        self.assertTrue(self.data["one_scale"])
        self.assertEqual([peak["allocated"] for peak in self.data["peaks"]],
                         [self.said["totals"]["allocated"][side] for side in "ab"])


class ComparedWithTheWatched(Sound, unittest.TestCase):
    tables = 2

    @classmethod
    def setUpClass(cls):
        cls.said, cls.bytes = written("diff", WATCHED, f"{SNAPSHOTS}/oom-gpt2.pickle.gz")
        cls.text = cls.bytes.decode()
        cls.page = Page(cls.text)

    def test_calls_unknown_what_it_does_not_know(self):
        self.assertIn(">unknown<", self.text)
        self.assertIsNone(self.said["components"]["weights"]["a"])
        # A stands left though it has no ledger.
        self.assertLess(self.text.index("A: memory over time"),
                        self.text.index("B: memory over time"))


def main():
    global HEADROOM
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headroom", required=True, help="the program")
    arguments, rest = parser.parse_known_args()
    HEADROOM = str(pathlib.Path(arguments.headroom).resolve())
    return 0 if unittest.main(argv=[sys.argv[0], *rest], exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
