#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/tokenizers with Hugging Face's tokenizers library (pip install tokenizers).

    bench/tokenizer_goldens.py tests/data/tokenizers
    bench/tokenizer_goldens.py --check FOLDER > goldens.json     # of a real tokenizer

Small tokenizers of the kinds that Headroom reads, and what the library makes of lines that are hard
to cut: the ids of each line, of each line with the next as a pair, and the line decoded.
"""
import argparse
import json
import pathlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = """The memory of a training run has six parts: weights, gradients, optimizer states,
activations, temporaries and what one feature costs. Weights and gradients are known before the run;
activations grow with the batch and with the sequence. Attention holds scores of every token with
every other token unless it is fused. An embedding is a table; its rows are tokens. In 1813, 2024 and
1,000,000 other years people measured it by hand: it's slow, they're tired, we've no time, I'd stop.
La memoria de un entrenamiento tiene seis partes. El niño comió en el café: ¿qué más? Früher war
alles größer, übrigens. Être naïf n'est pas un péché. Память нужна всем. 記憶は大切です。
def forward(self, x):\n    return self.norm(x + self.attention(x))\n\n\nif __name__ == "__main__":\n\tmain()
The quick brown fox jumps over the lazy dog; THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG!
""".splitlines(keepends=True)

LINES = [
    "", " ", "   ", "\n", "\t\t x \t", "Hello, world!", "hello  world   again", " leading and trailing ",
    "The memory of a training run has six parts.", "it's they're we've I'd I'm can't CAN'T 's",
    "don't do not won't", "UPPER lower MiXeD", "café naïve Ünïcödé Ångström", "cafe\u0301 a\u030a o\u0308\u0304",
    "İstanbul ıI ŞĞ", "ΑΒΓ ΣΟΦΟΣ ς σ", "straße STRASSE ẞ", "ﬁne ﬂow ½ ² ℌ Ⅳ", "日本語のテキスト", "中文abc混合123",
    "한국어 텍스트", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "ไทยภาษา", "हिन्दी पाठ", "עברית ערבית العربية", "Привет, мир!",
    "emoji 😀 👍🏽 👩‍👩‍👧 🇪🇸", "a\u200bb\u200cc\u200dd\ufeffe", "soft\u00adhyphen nb\u00a0space",
    "line\nbreak\r\ncrlf\rcr", "tab\tand\x0bvt\x0cff", "nul\x00 bell\x07 esc\x1b[0m del\x7f", "nel\x85x \u2028 \u2029 \u3000 \u180e y",
    "private \ue000 use \U0010fffd", "replacement \ufffd char", "1234567890 12,345.67 3.14e-10 ٣٤٥",
    "x=1;y+=2;z==x&&y||!z", "a@b.com http://x.y/z?q=1&r=2#f", "$100 €5 £3 ¥1 50% 20°C", "`code` ~tilde~ ^hat^ _under_ |pipe|",
    "“quotes” ‘single’ «guillemets» — – …", "!!!???...", "((((nested))))", "a" * 99, "b" * 101, "ab" * 150, "é" * 120,
    "[CLS] [SEP] [MASK][PAD] [UNK]", "<s>text</s><pad> <mask> <mask>x", "word <|endoftext|> more<|endoftext|>",
    "<|begin_of_text|>hi <|eot|>", "[cls] <S> [ MASK ]", "  new\n\n\n   lines \n \n", "    indented = True\n\treturn",
    "zażółć gęślą jaźń", "Tiếng Việt có dấu", "ʼn ŀ ǆ ﷺ", "x\u0336y\u0489 z\u20dd", "C# C++ .NET node.js", "I\u0307 i\u0307",
    "\U0001d54f\U0001d552 \U00020000\U0002a6df\U0002b820", "word" + " " * 40 + "word", "'", "''s '' 'll'", "x's 'S 'RE 'Ve",
    "newword newwords anewword newword.",
]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def wordpiece(lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special,
                                        show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_pairs(special, pre, vocab_size=420):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=2, special_tokens=special,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def gpt2():
    return byte_pairs(["<|endoftext|>"], pre_tokenizers.ByteLevel(add_prefix_space=False))


def llama3():
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = byte_pairs(["<|begin_of_text|>", "<|eot|>"], pre)
    text = json.loads(tokenizer.to_str())
    # A token that no merge makes, as Llama-3's have some.
    text["model"]["ignore_merges"] = True
    text["model"]["vocab"]["Ġgrößer"] = len(text["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(text))
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))])])
    return tokenizer


def roberta():
    tokenizer = byte_pairs(["<s>", "<pad>", "</s>", "<unk>"],
                           pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def steps():
    """The rarer steps: NFKC, digits, punctuation, tokens that are not special, a pattern inverted."""
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Split(Regex(r"[a-z]+"), "merged_with_next"),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer = byte_pairs(["<|endoftext|>"], pre)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.add_tokens([AddedToken("newword", single_word=True), AddedToken("Ünï", normalized=True),
                          AddedToken("<mask>", rstrip=True, lstrip=True, normalized=False)])
    return tokenizer


def goldens(tokenizer):
    tokenizer.no_padding()
    tokenizer.no_truncation()
    single = [tokenizer.encode(line) for line in LINES]
    pairs = [tokenizer.encode(a, b) for a, b in zip(LINES, LINES[1:])]
    tokenizer.enable_truncation(12)
    cut = [tokenizer.encode(a, b).ids for a, b in zip(LINES, LINES[1:])]
    return {
        "ids": [encoding.ids for encoding in single],
        "pair_ids": [encoding.ids for encoding in pairs],
        "pair_types": [encoding.type_ids for encoding in pairs],
        "cut_to_12": cut,
        "decoded": [tokenizer.decode(encoding.ids) for encoding in single],
        "decoded_whole": [tokenizer.decode(encoding.ids, skip_special_tokens=False)
                          for encoding in single],
    }


def dump(value):
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--check", action="store_true",
                        help="print the goldens of the tokenizer.json in the folder")
    arguments = parser.parse_args()
    if arguments.check:
        tokenizer = Tokenizer.from_file(str(arguments.folder / "tokenizer.json"))
        print(dump({"lines": LINES, "tokenizers": {"tokenizer": goldens(tokenizer)}}))
        return
    made = {"wordpiece": wordpiece(True), "wordpiece_cased": wordpiece(False), "gpt2": gpt2(),
            "llama3": llama3(), "roberta": roberta(), "steps": steps()}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    result = {"library": f"tokenizers {tokenizers.__version__}", "lines": LINES, "tokenizers": {}}
    for name, tokenizer in made.items():
        text = dump(json.loads(tokenizer.to_str()))
        (arguments.folder / f"{name}.json").write_text(text + "\n")
        result["tokenizers"][name] = goldens(Tokenizer.from_str(text))
    result["training_lines"] = TEXT
    (arguments.folder / "goldens.json").write_text(dump(result) + "\n")


if __name__ == "__main__":
    main()
