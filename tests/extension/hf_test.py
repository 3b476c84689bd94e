"""Hugging Face directories, GPTQ and AWQ checkpoints, and lm_convert.

A model of tests/testdata is written as a directory (hf_writer.py) and must be the same model: the same tokens, the
same bits of logits. LM_LOGITS is the program that dumps them.
"""
import json
import math
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import hf_writer
from harness import MODELS, connect, value

LM_LOGITS = os.environ["LM_LOGITS"]
LM_CONVERT = os.environ["LM_CONVERT"]
TEXTS = ["", "the rain in may", "Hello, World!  It's 12345 o'clock.\n\n  \tNaïve café, 日本語 — 😀", " leading", "<s> <|im_end|> [SEP]",
         "a  b   c\r\n\r\nd", "under_score snake-case CamelCase XMLHttp 3.14159"]
PARITY = ["llama-rope-factors-f16", "llama-spm-untied-f32", "llama-yarn-f32", "llama-linear-rope-f32", "qwen2-bf16", "qwen3-f32",
          "gemma3-f32", "phi3-f32"]
QUANTISED = {2: "Q4_0", 6: "Q5_0", 8: "Q8_0", 12: "Q4_K", 14: "Q6_K", 0: "F32", 1: "F16", 30: "BF16"}


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.db = connect()
        self.addCleanup(self.db.close)

    def logits(self, model):
        out = self.folder / "logits.f32"
        ids = ",".join(str(random.Random(1).randrange(3, 250) if i else 5) for i in range(40))
        ran = subprocess.run([LM_LOGITS, str(model), str(out), ids, "threads=1"], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return out.read_bytes()

    def ask(self, function, text, model):
        return value(self.db, f"SELECT {function}(?, json_object('model', ?))", text, str(model))

    def inspect(self, model):
        row = self.db.execute("SELECT * FROM lm_inspect(?)", [str(model)])
        return dict(zip([column[0] for column in row.description], row.fetchone()))

    def refusal(self, path, sql="SELECT problem FROM lm_inspect(?)"):
        try:
            return value(self.db, sql, str(path)) or ""
        except sqlite3.Error as error:
            return str(error)


class DirectoryTest(FolderTest):
    def test_a_directory_is_the_model_that_its_gguf_is(self):
        for name in PARITY:
            with self.subTest(name):
                gguf = hf_writer.Gguf(MODELS / f"{name}.gguf")
                folder = hf_writer.write_directory(gguf, self.folder / name)
                self.assertEqual(self.logits(folder), self.logits(MODELS / f"{name}.gguf"))
                for text in TEXTS:
                    self.assertEqual(self.ask("lm_tokenize", text, folder), self.ask("lm_tokenize", text, MODELS / f"{name}.gguf"))
                ours, theirs = self.inspect(folder), self.inspect(MODELS / f"{name}.gguf")
                for column in ("family", "parameters", "context", "layers", "hidden", "vocabulary", "kv_bytes_per_token"):
                    self.assertEqual(ours[column], theirs[column], column)
                self.assertIsNone(ours["problem"])

    def test_an_encoder_embeds_alike(self):
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "bert-f32.gguf"), self.folder / "bert")
        for text in TEXTS[1:]:
            for function in ("lm_embed", "lm_tokenize"):
                self.assertEqual(self.ask(function, text, folder), self.ask(function, text, MODELS / "bert-f32.gguf"))

    def test_word_pieces_have_no_bos(self):
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "bert-f32.gguf"), self.folder / "bert")
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text())
        self.assertEqual((settings.get("cls_token"), "bos_token" in settings), ("[CLS]", False))
        # Old releases do not even name [CLS].
        for change in ({}, {"bos_token": None, "eos_token": None}, {"cls_token": None, "sep_token": None}):
            path.write_text(json.dumps(settings | change))
            self.assertEqual(self.refusal(folder), "")
            self.assertEqual(self.ask("lm_tokenize", TEXTS[1], folder), self.ask("lm_tokenize", TEXTS[1], MODELS / "bert-f32.gguf"))

    def test_an_old_word_piece_does_not_say_what_it_is(self):
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "bert-f32.gguf"), self.folder / "bert")
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        for model, problem in ((tokenizer["model"] | {"type": None}, ""), ({"vocab": {}}, '"type": nothing is not supported'),
                               ({"vocab": {}, "type": None}, '"type": nothing is not supported')):
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"model": model}))
            self.assertIn(problem, self.refusal(folder))
            if not problem:
                self.assertEqual(self.ask("lm_embed", TEXTS[1], folder), self.ask("lm_embed", TEXTS[1], MODELS / "bert-f32.gguf"))

    def test_what_sentence_transformers_add_is_known_or_refused(self):
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "bert-f32.gguf"), self.folder / "bert")
        names = ["Transformer", "Pooling", "Normalize"]
        for last, problem in ((), ""), (("Dense",), '"type": "sentence_transformers.models.Dense" is not supported'):
            modules = [{"idx": i, "name": str(i), "type": "sentence_transformers.models." + name} for i, name in enumerate([*names, *last])]
            (folder / "modules.json").write_text(json.dumps(modules))
            self.assertIn(problem, self.refusal(folder))
        (folder / "modules.json").unlink()
        # Neither is one that is read.
        (folder / "README.json").symlink_to("nowhere")
        (folder / "old.safetensors").mkdir()
        before = self.ask("lm_embed", TEXTS[1], folder)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        self.assertNotEqual(self.ask("lm_embed", TEXTS[1], folder), before)

    def test_a_reranker_with_unigrams_ranks_alike(self):
        gguf = hf_writer.Gguf(MODELS / "bert-rerank-f32.gguf")
        folder = hf_writer.write_directory(gguf, self.folder / "xlm-roberta")
        for text in TEXTS[1:]:
            self.assertEqual(self.ask("lm_tokenize", text, folder), self.ask("lm_tokenize", text, MODELS / "bert-rerank-f32.gguf"))
        # A GGUF of a release says that two texts have one more token between them, and this one does not.
        rank = lambda model: value(self.db, "SELECT lm_rerank('what is it', 'the rain', json_object('model', ?))", str(model))
        path = folder / "tokenizer.json"
        both = json.loads(path.read_text())
        twice = rank(folder)
        both["post_processor"]["pair"].pop(3)
        path.write_text(json.dumps(both))
        self.assertEqual(rank(folder), rank(MODELS / "bert-rerank-f32.gguf"))
        self.assertNotEqual(twice, rank(folder))
        for change, message in [(lambda t: t["model"].update(unk_id=400), '"unk_id": wanted an id below 400'),
                                (lambda t: t["model"].update(byte_fallback=True), '"byte_fallback": true is not supported'),
                                (lambda t: t["model"]["vocab"][7].pop(), "token 7: wanted a name and a score"),
                                (lambda t: t["model"]["vocab"].append(["x", 0]), "an array of at most 400 tokens"),
                                (lambda t: t["normalizer"].update(precompiled_charsmap="?"), "wanted base 64"),
                                (lambda t: t["normalizer"].update(type="Lowercase"), 'normalizer: "type": "Lowercase" is not supported'),
                                (lambda t: t.pop("pre_tokenizer"), "a Metaspace")]:
            tokenizer = hf_writer.tokenizer_json(gguf.keys)
            change(tokenizer)
            path.write_text(json.dumps(tokenizer))
            self.assertIn(message, self.refusal(folder))

    def test_shards_names_and_the_default_model(self):
        gguf = hf_writer.Gguf(MODELS / "qwen3-f32.gguf")
        whole = hf_writer.write_directory(gguf, self.folder / "whole")
        shards = hf_writer.write_directory(gguf, self.folder / "shards", shards=3)
        self.assertEqual(self.logits(shards), self.logits(whole))
        self.db.execute("INSERT INTO temp.lm_models(name, path) VALUES ('m', ?)", [str(shards)])
        self.assertEqual(value(self.db, "SELECT lm_token_count('rain', '{\"model\":\"m\"}')"), self.ask("lm_token_count", "rain", whole))
        ran = subprocess.run([sys.executable, "-c", "import harness; print(harness.value(harness.connect(), "
                              "\"SELECT family FROM lm_inspect((SELECT path FROM temp.lm_models)) UNION ALL SELECT lm_tokenize('rain')\"))"],
                             env=os.environ | {"LM_MODEL": str(whole)}, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_other_spellings_are_the_same_model(self):
        """As other releases of transformers, and models with images, write config.json and the names of tensors."""
        def spell(name, rename=lambda stored: stored, change=lambda config: config):
            gguf = hf_writer.Gguf(MODELS / f"{name}.gguf")
            tensors = {rename(stored): tensor for stored, tensor in hf_writer.hf_tensors(gguf).items()}
            folder = hf_writer.write_directory(gguf, self.folder / str(len(list(self.folder.iterdir()))), tensors)
            (folder / "config.json").write_text(json.dumps(change(hf_writer.config_json(gguf))))
            self.assertEqual(self.logits(folder), self.logits(MODELS / f"{name}.gguf"))
            return folder

        rope = lambda config: {"rope_theta": config.pop("rope_theta"), **(config.pop("rope_scaling") or {"rope_type": "default"})}
        spell("llama-rope-factors-f16", change=lambda config: config | {"model_type": "mistral", "rope_parameters": rope(config),
                                                                        "rope_theta": None, "rope_scaling": None})
        spell("qwen3-f32", rename=lambda stored: stored.removeprefix("model."))
        spell("gemma3-f32", rename=lambda stored: "language_model." + stored,
              change=lambda config: {"model_type": "gemma3", "text_config": config, "vision_config": {}})
        spell("gemma3-f32", change=lambda config: config | {
            "rope_parameters": {"full_attention": rope(config), "sliding_attention": {"rope_theta": 10000.0}},
            "rope_theta": None, "rope_scaling": None, "rope_local_base_freq": None,
            "layer_types": [["sliding", "full"][i % 6 == 5] + "_attention" for i in range(config["num_hidden_layers"])]})
        # Beside the text's: what reads images, and what old releases stored.
        folder = spell("qwen3-f32")
        more = hf_writer.hf_tensors(hf_writer.Gguf(MODELS / "qwen3-f32.gguf")) | {
            "model.vision_tower.embeddings.weight": ("F32", [1], bytes(4)),
            "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", [2], bytes(8))}
        hf_writer.save(folder / "model.safetensors", more)
        self.assertEqual(self.refusal(folder, "SELECT lm_token_count('a', json_object('model', ?))"), 1)

    def test_templates_and_special_tokens(self):
        gguf = hf_writer.Gguf(MODELS / "qwen3-f32.gguf")
        folder = hf_writer.write_directory(gguf, self.folder / "m")
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        render = lambda: value(self.db, "SELECT lm_render('hi', NULL, json_object('model', ?))", str(folder))
        settings["chat_template"] = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "[{{ messages[0].content }}]"}]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        self.assertEqual(render(), "[hi]")
        (folder / "chat_template.jinja").write_text("<|im_start|>{{ messages[0].content }}")
        self.assertEqual(render(), "<|im_start|>hi")
        settings |= {"add_bos_token": True, "bos_token": {"content": "<|im_start|>", "special": True}}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        self.assertEqual(json.loads(self.ask("lm_tokenize", "", folder)), [gguf.keys["tokenizer.ggml.tokens"].index("<|im_start|>")])

    def test_the_template_of_an_old_model_with_images(self):
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "qwen3-f32.gguf"), self.folder / "m")
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "chat_template.json").write_text(json.dumps({"chat_template": "[{{ messages[0].content }}]"}))
        for own, text in (({"chat_template": "<{{ messages[0].content }}>"}, "<hi>"), ({"chat_template": None}, "[hi]")):
            (folder / "tokenizer_config.json").write_text(json.dumps(settings | own))
            self.assertEqual(value(self.db, "SELECT lm_render('hi', NULL, json_object('model', ?))", str(folder)), text)

    def test_norms_of_the_first_releases_of_bert(self):
        gguf = hf_writer.Gguf(MODELS / "bert-f32.gguf")
        old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
               for name, tensor in hf_writer.hf_tensors(gguf).items()}
        self.assertIn("embeddings.LayerNorm.gamma", old)
        folder = hf_writer.write_directory(gguf, self.folder / "bert", old)
        self.assertEqual(self.ask("lm_embed", TEXTS[1], folder), self.ask("lm_embed", TEXTS[1], MODELS / "bert-f32.gguf"))

    def test_a_window_in_each_layer(self):
        """Mistral's first: a token sees no further back than `layers` windows, and to the end of the first what it sees is as without."""
        layers, window, tokens = 2, 8, 40
        gguf = hf_writer.Gguf(MODELS / "llama-rope-factors-f16.gguf")
        self.assertEqual(gguf.keys["llama.block_count"], layers)
        vocab = len(gguf.keys["tokenizer.ggml.tokens"])

        def rows(ids, **config):
            folder = hf_writer.write_directory(gguf, self.folder / str(len(list(self.folder.iterdir()))), **{"model_type": "mistral"} | config)
            out = self.folder / "logits.f32"
            ran = subprocess.run([LM_LOGITS, str(folder), str(out), ",".join(map(str, ids)), "threads=1", "kv_type=f32"], capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            data = out.read_bytes()
            return [struct.unpack_from(f"<{vocab}f", data, 4 * vocab * i) for i in range(len(ids))]

        ids = [5 + i * 7 % 240 for i in range(tokens)]
        seen, whole = rows(ids, sliding_window=window), rows(ids)
        last = rows(ids[-1 - layers * (window - 1):], sliding_window=window)[-1]
        distance = lambda a, b: max(abs(x - y) for x, y in zip(a, b))
        self.assertLess(max(distance(seen[i], whole[i]) for i in range(window)), 1e-4)
        self.assertLess(distance(seen[-1], last), 1e-3)
        self.assertGreater(distance(seen[-1], whole[-1]), 1e-2)
        self.assertGreater(distance(seen[window], whole[window]), 1e-3)
        self.assertEqual(rows(ids, sliding_window=window, model_type="llama"), whole)

    def test_added_tokens_swallow_white_space(self):
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "qwen3-f32.gguf"), self.folder / "m")
        path, text = folder / "tokenizer.json", "a \n<think>\n b"
        tokenizer = json.loads(path.read_text())
        mark = next(token for token in tokenizer["added_tokens"] if token["content"] == "<think>")
        apart = self.ask("lm_tokenize", text, folder)
        for side, bare in ("lstrip", "a<think>\n b"), ("rstrip", "a \n<think>b"):
            mark |= {"lstrip": side == "lstrip", "rstrip": side == "rstrip"}
            path.write_text(json.dumps(tokenizer))
            self.assertEqual(self.ask("lm_tokenize", text, folder), self.ask("lm_tokenize", bare, folder))
            self.assertNotEqual(self.ask("lm_tokenize", text, folder), apart)
        file = self.folder / "m.gguf"
        converted = subprocess.run([LM_CONVERT, str(folder), str(file), "F32"], capture_output=True, text=True)
        self.assertEqual(converted.returncode, 0, converted.stderr)
        self.assertEqual(self.ask("lm_tokenize", text, file), self.ask("lm_tokenize", text, folder))

    def test_a_metaspace_puts_no_space_before_one_that_is_there(self):
        gguf = hf_writer.Gguf(MODELS / "llama-spm-untied-f32.gguf")
        folder = hf_writer.write_directory(gguf, self.folder / "m")
        path, tokens = folder / "tokenizer.json", gguf.keys["tokenizer.ggml.tokens"]
        tokenizer, mark = json.loads(path.read_text()), tokens.index("zoo")
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "split": False}
        tokenizer |= {"normalizer": None, "added_tokens": tokenizer["added_tokens"] + [{"id": mark, "content": "zoo", "special": False}]}
        space, a = tokens.index("\u2581"), tokens.index("a")
        wanted = {"always": {"a": [space, a], " a": [space, a], "\u2581a": [space, a], "a zooa": [space, a, space, mark, space, a], "zoo a": [mark, space, a]},
                  "first": {"a": [space, a], " a": [space, a], "azooa": [space, a, mark, a], "zooa": [mark, a], "zoo a": [mark, space, a]},
                  "never": {"a": [a], "zooa": [mark, a]}}
        bos = [tokens.index("<s>")] if gguf.keys.get("tokenizer.ggml.add_bos_token") else []
        for scheme, texts in wanted.items():
            path.write_text(json.dumps(tokenizer | {"pre_tokenizer": metaspace | {"prepend_scheme": scheme}}))
            for text, ids in texts.items():
                self.assertEqual(json.loads(self.ask("lm_tokenize", text, folder)), bos + ids, (scheme, text))
        path.write_text(json.dumps(tokenizer | {"pre_tokenizer": metaspace | {"prepend_scheme": "last"}}))
        self.assertIn('"prepend_scheme": "last" is not supported', self.refusal(folder))

    def test_a_changed_directory_is_loaded_anew(self):
        gguf = hf_writer.Gguf(MODELS / "qwen3-f32.gguf")
        folder = hf_writer.write_directory(gguf, self.folder / "m")
        before = self.ask("lm_logprobs", "the rain", folder)
        tensors = hf_writer.hf_tensors(gguf)
        kind, shape, data = tensors["model.norm.weight"]
        tensors["model.norm.weight"] = (kind, shape, struct.pack(f"<{shape[0]}f", *[2.0] * shape[0]))
        (folder / "model.safetensors").unlink()
        hf_writer.save(folder / "model.safetensors", tensors)
        after = self.ask("lm_logprobs", "the rain", folder)
        self.assertNotEqual(after, before)
        (folder / "notes.json").write_text("{}")  # nothing of the model's
        (folder / "model.safetensors").unlink()  # it is still in memory
        self.assertEqual(self.ask("lm_logprobs", "the rain", folder), after)

    def test_what_is_wrong_is_named(self):
        gguf = hf_writer.Gguf(MODELS / "qwen3-f32.gguf")
        tensors = hf_writer.hf_tensors(gguf)
        kind, shape, data = tensors["model.norm.weight"]
        load = "SELECT lm_token_count('a', json_object('model', ?))"
        cases = [
            ({"model_type": "mamba"}, {}, "'mamba' is not read from a directory"),
            ({"hidden_size": None}, {}, '"hidden_size": wanted a whole number, got nothing'),
            ({"hidden_size": "x"}, {}, '"hidden_size": wanted a whole number, got "x"'),
            ({"rope_scaling": "linear"}, {}, '"rope_scaling": wanted an object, got "linear"'),
            ({"quantization_config": []}, {}, "quantization_config: wanted an object, got []"),
            ({"hidden_act": "relu"}, {}, '"hidden_act": "relu" is not supported'),
            ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, {}, '"rope_type": "dynamic" is not supported'),
            ({"quantization_config": {"quant_method": "fp8"}}, {}, 'quant_method "fp8" is not supported'),
            ({"quantization_config": {"quant_method": "gptq", "bits": 3}}, {}, "3 bits are not supported"),
            ({"vocab_size": 200}, {}, "wanted an id below 200, got 200"),
            ({"use_sliding_window": True, "sliding_window": 64}, {}, "sliding_window"),
            ({"head_dim": 1 << 40, "rope_scaling": {"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8192}}, {},
             "heads of an even size from 2 to 4096 wanted, got 1099511627776"),
            ({"partial_rotary_factor": 1e300}, {}, '"partial_rotary_factor": wanted a number > 0 and up to 1, got 1e+300'),
            ({"hidden_size": "é" * 100}, {}, '"hidden_size": wanted a whole number, got "ééé'),
            ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, {}, '"use_bidirectional_attention": true is not supported'),
            ({"model_type": "phi3", "rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 1e300}, {},
             '"original_max_position_embeddings": wanted a whole number, got 1e+300'),
            ({}, {"model.extra.weight": (kind, shape, data)}, 'tensor "model.extra.weight": is not part of the supported'),
            ({}, {"model.norm.weight": ("I64", [shape[0] // 2], data)}, "wanted F32, F16 or BF16, got I64 [16]"),
            ({}, {"model.norm.weight": (kind, [shape[0] * 2], data)}, "takes 256 bytes, its data_offsets have 128"),
            ({}, {"model.norm.weight": ("F31", shape, data)}, 'dtype "F31" is not known'),
            ({}, {"model.norm.weight": (kind, [shape[0] // 2], data[:64])}, "must be 1 x 32, got 1 x 16"),
            ({}, {"model.norm.weight": None}, "tensor 'output_norm.weight' is missing"),
        ]
        for i, (config, changed, message) in enumerate(cases):
            merged = {name: tensor for name, tensor in (tensors | changed).items() if tensor is not None}
            folder = hf_writer.write_directory(gguf, self.folder / f"case{i}", merged, **config)
            self.assertIn(message, self.refusal(folder, load))
        folder = self.folder / "case0"
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        (folder / "config.json").write_text(json.dumps(hf_writer.config_json(gguf)))
        tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-q]+|unheard-of"
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.assertIn("[a-q]+|unheard-of", self.refusal(folder))
        (folder / "tokenizer.json").unlink()
        self.assertIn("tokenizer.json': No such file or directory; vocabularies in other files, such as tokenizer.model", self.refusal(folder))
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        hf_writer.write_directory(gguf, self.folder / "whole")
        shutil.copy(self.folder / "whole" / "tokenizer.json", folder)
        self.assertIn("are not read, as they are programs", self.refusal(folder))
        self.assertIn("config.json", self.refusal(self.folder))

    def test_a_folder_that_is_no_model_says_what_it_is(self):
        problems = lambda path: [self.refusal(path), self.refusal(path, "SELECT lm_token_count('a', json_object('model', ?))")]
        for problem in problems(self.folder):
            self.assertTrue(problem.endswith("config.json': No such file or directory"), problem)
        (self.folder / "adapter_config.json").write_text("{}")
        for problem in problems(self.folder):
            self.assertIn("a folder of an adapter (PEFT's)", problem)
        (self.folder / "Model-Q8_0.gguf").write_bytes(b"GGUF")
        for problem in problems(self.folder):
            self.assertIn(f"a file in it is '{self.folder}/Model-Q8_0.gguf'", problem)

    def test_pointers_of_git_lfs_are_called_so(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
        file = self.folder / "m.gguf"
        file.write_bytes(pointer)
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "qwen3-f32.gguf"), self.folder / "m")
        self.assertIn('m.gguf\': only a pointer of Git LFS to the file ("git lfs pull" fetches it)', self.refusal(file))
        for name in ("model.safetensors", "tokenizer.json"):  # which is read first
            (folder / name).write_bytes(pointer)
            self.assertIn("only a pointer of Git LFS", self.refusal(folder))
            self.assertIn(name, self.refusal(folder))

    def test_damaged_files_are_refused_or_read(self):
        """A thousand flips and cuts, in each of the files: an answer, or an error with the file's name."""
        draw = random.Random(7)
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "qwen3-f32.gguf"), self.folder / "m", shards=2)
        files = [path for path in folder.iterdir() if path.is_file()]
        texts = {path: path.read_bytes() for path in files}
        refused = 0
        for round_ in range(600):
            path = files[round_ % len(files)]
            text = bytearray(texts[path])
            front = min(len(text), 4000)
            for _ in range(draw.randrange(1, 4)):
                at = draw.randrange(front)
                text[at] = draw.randrange(256) if draw.random() < 0.3 else draw.choice(b'0123456789{}[],:"-.eE')
            if round_ % 10 == 0:
                del text[draw.randrange(len(text)):]
            path.write_bytes(text)
            problem = self.refusal(folder)
            refused += problem != ""
            path.write_bytes(texts[path])
        self.assertGreater(refused, 200)
        self.assertEqual(self.refusal(folder), "")


def half(number):
    return struct.unpack("<e", struct.pack("<e", number))[0]


def pack_words(codes, bits):
    """32 bits a word, the first code lowest."""
    count = 32 // bits
    return [sum(code << bits * i for i, code in enumerate(codes[at:at + count])) for at in range(0, len(codes), count)]


class Packing:
    """One way of packing; `matrices` counts what each became by its definition."""

    def __init__(self, method, bits, group, symmetric, v2=False, act_order=False):
        self.method, self.bits, self.group, self.symmetric = method, bits, group, symmetric
        self.v2, self.act_order = v2, act_order

    def config(self):
        if self.method == "awq":
            return {"quant_method": "awq", "bits": 4, "group_size": self.group, "zero_point": True, "version": "gemm"}
        return {"quant_method": "gptq", "bits": self.bits, "group_size": self.group, "desc_act": self.act_order,
                "sym": self.symmetric, "checkpoint_format": "gptq_v2" if self.v2 else "gptq"}

    def pack(self, rng, stem, outputs, inputs):
        """The packed tensors of a random matrix, and its values by definition, row by row."""
        size = self.group if self.group > 0 else inputs
        groups, top = inputs // size, 1 << self.bits
        group_of = [i // size for i in range(inputs)]
        if self.act_order:
            rng.shuffle(group_of)
        codes = [[rng.randrange(top) for _ in range(outputs)] for _ in range(inputs)]
        # Zeros are 1 to 2^bits in GPTQ's first format, 0 to 2^bits - 1 in the others.
        low = 0 if self.v2 or self.method == "awq" else 1
        zeros = [[top // 2 if self.symmetric else rng.randrange(low, top + low) for _ in range(outputs)] for _ in range(groups)]
        scales = [[half(rng.uniform(0.5, 1.5) * 2 / top / inputs ** 0.5) for _ in range(outputs)] for _ in range(groups)]
        words = lambda rows: b"".join(struct.pack(f"<{len(row)}I", *row) for row in rows)
        if self.method == "awq":
            order = [0, 2, 4, 6, 1, 3, 5, 7]
            shuffled = lambda rows: [[row[at + i] for at in range(0, outputs, 8) for i in order] for row in rows]
            weights = [pack_words(row, 4) for row in shuffled(codes)]
            packed_zeros = [pack_words(row, 4) for row in shuffled(zeros)]
        else:
            columns = [pack_words([codes[i][o] for i in range(inputs)], self.bits) for o in range(outputs)]
            weights = [list(row) for row in zip(*columns)]
            packed_zeros = [pack_words([zero - (not self.v2) for zero in row], self.bits) for row in zeros]
        tensors = {stem + ".qweight": ("I32", [len(weights), len(weights[0])], words(weights)),
                   stem + ".qzeros": ("I32", [groups, len(packed_zeros[0])], words(packed_zeros)),
                   stem + ".scales": ("F16", [groups, outputs], b"".join(struct.pack(f"<{outputs}e", *row) for row in scales))}
        if self.method == "gptq":
            tensors[stem + ".g_idx"] = ("I32", [inputs], struct.pack(f"<{inputs}i", *group_of))
        return tensors, [[scales[group_of[i]][o] * (codes[i][o] - zeros[group_of[i]][o]) for i in range(inputs)]
                         for o in range(outputs)]


PACKINGS = {
    # name: (model, packing, type, whether that is exact)
    "gptq-sym": ("qwen2-bf16", Packing("gptq", 4, 32, True), "Q4_0", True),
    "gptq-asym": ("qwen2-bf16", Packing("gptq", 4, 64, False), "Q5_0", True),
    "gptq-v2-one-group": ("llama-rope-factors-f16", Packing("gptq", 4, -1, False, v2=True), "Q5_0", True),
    "gptq-8-sym": ("llama-rope-factors-f16", Packing("gptq", 8, 32, True), "Q8_0", True),
    "gptq-8-asym": ("llama-rope-factors-f16", Packing("gptq", 8, 32, False), "F16", False),
    "gptq-act-order": ("qwen2-bf16", Packing("gptq", 4, 32, True, act_order=True), "F16", False),
    "awq": ("llama-rope-factors-f16", Packing("awq", 4, 32, False), "Q5_0", True),
}


class PackedTest(FolderTest):
    def test_packed_matrices_are_what_they_are_defined_to_be(self):
        for name, (model, packing, kind, exact) in PACKINGS.items():
            with self.subTest(name):
                gguf, rng = hf_writer.Gguf(MODELS / f"{model}.gguf"), random.Random(name)
                tensors, defined = {}, {}
                for stored, tensor in hf_writer.hf_tensors(gguf).items():
                    if "_proj." in stored and stored.endswith("weight"):
                        packed, defined[stored] = packing.pack(rng, stored[:-len(".weight")], *tensor[1])
                        tensors |= packed
                    else:
                        tensors[stored] = tensor
                folder = hf_writer.write_directory(gguf, self.folder / name, tensors, quantization_config=packing.config())
                self.assertIn(kind, json.loads(self.inspect(folder)["types"]))
                for type_ in ("F32", "F16"):
                    value(self.db, "SELECT lm_convert(?, ?, ?)", str(folder), str(self.folder / f"{name}-{type_}.gguf"), type_)
                ours = hf_writer.Gguf(self.folder / f"{name}-F32.gguf")
                plain = {stored: ("F32", [len(values), len(values[0])], b"".join(struct.pack(f"<{len(row)}f", *row) for row in values))
                         for stored, values in defined.items()}
                stored_as = hf_writer.hf_tensors(ours)
                for stored, (_, _, wanted) in plain.items():
                    if exact:
                        self.assertEqual(stored_as[stored][2], wanted, stored)
                        continue
                    count = len(wanted) // 4
                    self.assertEqual(list(struct.unpack(f"<{count}f", stored_as[stored][2])),
                                     [half(x) for x in struct.unpack(f"<{count}f", wanted)], stored)
                packed, plain_f16 = self.mean_logprob(folder), self.mean_logprob(self.folder / f"{name}-F16.gguf")
                self.assertLess(abs(packed - plain_f16), 1e-3)  # 0.1% of the perplexity

    def mean_logprob(self, model):
        draw, found = random.Random(3), []
        for _ in range(8):
            text = " ".join(draw.choice(["the", "rain", "in", "may", "a", "bicycle", "or", "two"]) for _ in range(100))
            found += json.loads(self.ask("lm_logprobs", text, model))[1:]
        return sum(found) / len(found)

    def test_what_is_wrong_is_named(self):
        gguf, packing = hf_writer.Gguf(MODELS / "qwen2-bf16.gguf"), Packing("gptq", 4, 32, True)
        tensors = hf_writer.hf_tensors(gguf)
        stem = "model.layers.0.mlp.up_proj"
        _, shape, _ = tensors.pop(stem + ".weight")
        packed, _ = packing.pack(random.Random(1), stem, *shape)
        kind, zeros_shape, zeros = packed[stem + ".qzeros"]
        bad_group = struct.pack(f"<{shape[1]}i", *[9] * shape[1])
        cases = [
            ({stem + ".qzeros": None}, {}, f'"{stem}.qzeros" is missing'),
            ({stem + ".qweight": None}, {}, f'there is no "{stem}.qweight"'),
            ({stem + ".qzeros": ("F16", [zeros_shape[0], 2 * zeros_shape[1]], zeros)}, {}, "wanted I32 [2, 16], got F16 [2, 32]"),
            ({stem + ".g_idx": ("I32", [shape[1]], bad_group)}, {}, "input 0 is in group 9, where there are 2"),
            ({}, {"quantization_config": None}, "no quantization_config that says how"),
            ({}, {"quantization_config": packing.config() | {"checkpoint_format": "marlin"}}, 'layout "marlin" is not supported'),
            ({}, {"quantization_config": packing.config() | {"group_size": 0}}, "got 0"),
            ({stem + ".g_idx": None}, {"quantization_config": packing.config() | {"group_size": 64}}, "wanted 1 groups of 64 inputs, got 2"),
        ]
        for i, (changed, config, message) in enumerate(cases):
            merged = {name: tensor for name, tensor in (tensors | packed | changed).items() if tensor is not None}
            folder = hf_writer.write_directory(gguf, self.folder / f"case{i}", merged,
                                               **({"quantization_config": packing.config()} | config))
            self.assertIn(message, self.refusal(folder))


class ConvertTest(FolderTest):
    def test_a_copy_says_the_same(self):
        for name in ("qwen3-f32", "gemma3-f32", "llama-spm-untied-f32"):
            with self.subTest(name):
                source, copy = MODELS / f"{name}.gguf", self.folder / f"{name}.gguf"
                report = json.loads(value(self.db, "SELECT lm_convert(?, ?, 'F32')", str(source), str(copy)))
                self.assertEqual(report["bytes"], copy.stat().st_size)
                self.assertEqual(self.logits(copy), self.logits(source))
                keys, made = hf_writer.Gguf(source).keys, hf_writer.Gguf(copy).keys
                for key in keys.keys() - {"general.alignment"}:
                    self.assertEqual(made[key], keys[key], key)

    def test_keys_are_as_llama_cpp_reads_them(self):
        """It wants ids as U32 (4), takes one beyond the vocabulary for none, and cannot do without some of the keys."""
        for name in ("llama-spm-untied-f32", "qwen2-bf16", "bert-f32"):
            out = self.folder / f"{name}.gguf"
            folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / f"{name}.gguf"), self.folder / name)
            value(self.db, "SELECT lm_convert(?, ?, 'F16')", str(folder), str(out))
            made = hf_writer.Gguf(out)
            ids = {key: made.keys[key] for key in made.keys if key.endswith("_token_id")}
            self.assertGreaterEqual(len(ids), 2)
            self.assertEqual({made.key_types[key] for key in ids}, {4}, ids)
            known = {key: id for key, id in hf_writer.Gguf(MODELS / f"{name}.gguf").keys.items() if key.endswith("_token_id")}
            for key, id in ids.items():
                self.assertEqual(id, known.get(key, 0xffffffff), key)
            self.assertEqual(made.keys.get("tokenizer.ggml.token_type_count"), 2 if name.startswith("bert") else None)
        # The name asks for tokens that Phi-4's vocabulary does not have.
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "phi3-f32.gguf"), self.folder / "other")
        self.assertEqual(self.inspect(folder)["name"], "other")

    def test_the_destination_is_one_that_the_connection_may_attach(self):
        out = self.folder / "out.gguf"
        sql = f"SELECT lm_convert('{MODELS / 'qwen3-f32.gguf'}', ?, 'F16')"
        self.db.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK)
        self.assertIn(f"'{out}' may not be opened: not authorized", self.refusal(out, sql))
        self.assertEqual(list(self.folder.iterdir()), [])
        self.db.set_authorizer(lambda *_: sqlite3.SQLITE_OK)
        self.assertIn("tensors", self.refusal(out, sql))

    def test_what_can_fail_at_once_does(self):
        """Before anything is loaded; and texts that cannot be measured leave no file."""
        out, importance = self.folder / "out.gguf", '{"importance":["the rain"],"texts":["the rain"]}'
        self.assertIn("type must be one of", self.refusal(out, f"SELECT lm_convert('/no/such', ?, 'Q3', '{importance}')"))
        for there in (out, self.folder / "out.gguf.part"):
            there.write_bytes(b"mine")
            self.assertIn("exists", self.refusal(out, f"SELECT lm_convert('/no/such', ?, 'F16', '{importance}')"))
            there.unlink()
        self.assertIn("an encoder has no perplexity", self.refusal(
            out, f"SELECT lm_convert('{MODELS / 'bert-f32.gguf'}', ?, 'F16', '{{\"texts\":[\"the rain\"]}}')"))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_program(self):
        source, out, texts = MODELS / "qwen3-f32.gguf", self.folder / "out.gguf", self.folder / "texts"
        run = lambda *arguments: subprocess.run([LM_CONVERT, *map(str, arguments)], capture_output=True, text=True)
        for threads in ("0", "1025", "x"):
            self.assertIn("threads=1 to 1024", run(source, out, "F16", "threads=" + threads).stderr)
        texts.write_text("the rain in may\n")
        ran = run(source, out, "Q8_0", f"texts={texts}", "threads=1")
        self.assertEqual([line.split()[0] for line in ran.stdout.splitlines()], ["perplexity", "perplexity", f"{len(hf_writer.Gguf(out).types)}"])
        self.assertIn("exists", run(source, out, "Q8_0").stderr)
        rows, row = 1 << 16, struct.pack("<256e", *[random.Random(1).gauss(0, 1) for _ in range(256)])
        gguf = hf_writer.Gguf(source)
        folder = hf_writer.write_directory(gguf, self.folder / "m", hf_writer.hf_tensors(gguf) | {
            "model.embed_tokens.weight": ("F16", [rows, 256], row * rows)})
        other = self.folder / "other.gguf"
        for number in (signal.SIGINT, signal.SIGTERM):
            running = subprocess.Popen([LM_CONVERT, folder, other, "Q4_K_M", "threads=1"], stderr=subprocess.PIPE, text=True)
            while not (self.folder / "other.gguf.part").exists():
                self.assertIsNone(running.poll())
            running.send_signal(number)
            self.assertIn("interrupted", running.communicate()[1])
            self.assertEqual(running.returncode, 1)
            self.assertEqual({path.name for path in self.folder.iterdir()}, {"m", "out.gguf", "texts"})

    def test_types_mixes_and_perplexity(self):
        texts = json.dumps({"texts": ["the rain in may " * 20, None, "a bicycle or two"]})
        folder = hf_writer.write_directory(hf_writer.Gguf(MODELS / "qwen2-bf16.gguf"), self.folder / "m")
        for type_, most in (("F16", {"F16"}), ("BF16", {"BF16"}), ("Q8_0", {"Q8_0"}), ("Q6_K", {"Q8_0"}), ("Q4_0", {"Q4_0", "Q8_0"}),
                            ("Q4_K_M", {"Q5_0", "Q8_0"})):
            with self.subTest(type_):
                out = self.folder / f"{type_}.gguf"
                report = json.loads(value(self.db, "SELECT lm_convert(?, ?, ?, ?)", str(folder), str(out), type_, texts))
                made = hf_writer.Gguf(out)
                self.assertEqual({QUANTISED[kind] for kind in made.types.values()}, most | {"F32"})
                before, after = report["perplexity_before"], report["perplexity_after"]
                self.assertLess(abs(after / before - 1), {"F16": 1e-3, "BF16": 1e-6, "Q8_0": 0.01}.get(type_, 0.4))

    def test_perplexity_is_that_of_lm_logprobs(self):
        model, texts = MODELS / "qwen3-f32.gguf", ["the rain in may " * 30, "a bicycle or two"]
        report = json.loads(value(self.db, "SELECT lm_convert(?, ?, 'Q8_0', json_object('texts', json(?)))", str(model),
                                  str(self.folder / "q8.gguf"), json.dumps(texts)))
        for path, found in ((model, report["perplexity_before"]), (self.folder / "q8.gguf", report["perplexity_after"])):
            logprobs = [p for text in texts for p in json.loads(self.ask("lm_logprobs", text, path))[1:]]
            self.assertAlmostEqual(math.log(found), -sum(logprobs) / len(logprobs), 4)

    def test_importance_keeps_what_texts_need(self):
        shipped = pathlib.Path(__file__).resolve().parents[2] / "sql" / "models" / "debian-notes.gguf"
        others = [f"A library to {verb} {what} in programs." for verb in ("read", "write", "draw", "sort")
                  for what in ("images", "mail", "archives", "maps of the stars")]
        texts = ["A program to show pictures and to send mail from a shell.", "Documentation of the compression library."] * 3
        found = {}
        for samples in ([], others):
            options = json.dumps({"texts": texts, "importance": samples})
            out = self.folder / f"{len(samples)}.gguf"
            report = json.loads(value(self.db, "SELECT lm_convert(?, ?, 'Q4_0', ?)", str(shipped), str(out), options))
            found[len(samples)] = report["perplexity_after"] / report["perplexity_before"]
        self.assertLess(found[16], found[0])
        self.assertIn("no text has two tokens", self.refusal(
            self.folder / "x.gguf", f"SELECT lm_convert('{shipped}', ?, 'Q4_0', '{{\"importance\":[\"\"]}}')"))

    def test_nothing_is_left_of_what_failed(self):
        source, out = MODELS / "qwen3-f32.gguf", self.folder / "out.gguf"
        out.write_bytes(b"mine")
        self.assertIn("exists", self.refusal(out, f"SELECT lm_convert('{source}', ?, 'F16')"))
        self.assertEqual(out.read_bytes(), b"mine")
        out.unlink()
        self.assertIn("type must be one of", self.refusal(out, f"SELECT lm_convert('{source}', ?, 'Q3')"))
        self.assertIn("no/such", self.refusal(out, "SELECT lm_convert('/no/such', ?, 'F16')"))
        self.assertIn("colour", self.refusal(out, f"SELECT lm_convert('{source}', ?, 'F16', '{{\"colour\":1}}')"))
        damaged = self.folder / "damaged.gguf"
        damaged.write_bytes(source.read_bytes()[:-400] + struct.pack("<100f", *[float("nan")] * 100))
        self.assertIn("tensor", self.refusal(out, f"SELECT lm_convert('{damaged}', ?, 'F16')"))
        big = hf_writer.Gguf(source)
        folder = hf_writer.write_directory(big, self.folder / "m", hf_writer.hf_tensors(big) | {
            "model.layers.0.mlp.up_proj.weight": ("F32", [64, 32], struct.pack("<2048f", *[1e6] * 2048))})
        self.assertIn('tensor "blk.0.ffn_up.weight"', self.refusal(out, f"SELECT lm_convert('{folder}', ?, 'F16')"))
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["damaged.gguf", "m"])

    def test_an_interrupt_ends_it_and_leaves_nothing(self):
        gguf = hf_writer.Gguf(MODELS / "qwen3-f32.gguf")
        rows = 1 << 16  # of 256 values: seconds of searching for scales
        row = struct.pack("<256e", *[random.Random(1).gauss(0, 1) for _ in range(256)])
        folder = hf_writer.write_directory(gguf, self.folder / "m", hf_writer.hf_tensors(gguf) | {
            "model.embed_tokens.weight": ("F16", [rows, 256], row * rows)})
        out, done = self.folder / "out.gguf", threading.Event()

        def interrupt():
            while not done.wait(0.05):
                self.db.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        problem = self.refusal(out, f"SELECT lm_convert('{folder}', ?, 'Q4_K_M', '{{\"threads\":1}}')")
        done.set()
        thread.join()
        self.assertIn("interrupt", problem.lower())
        self.assertEqual([path.name for path in self.folder.iterdir()], ["m"])


if __name__ == "__main__":
    unittest.main()
