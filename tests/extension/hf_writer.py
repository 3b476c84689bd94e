"""Reads small GGUF files and writes their models as Hugging Face directories, as transformers saves them.

The mapping is written here from the other side, so that what engine/hf does is held to something.
"""
import array
import base64
import json
import pathlib
import struct

TYPES = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}
PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
CASELESS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BREAKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPLITS = {
    "qwen2": CASELESS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BREAKS,
    "llama-bpe": CASELESS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BREAKS,
    "gpt-4o": rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CASELESS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CASELESS}?"
              rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BREAKS}",
}


class Gguf:
    """keys, the numbers of their types, and tensors: name -> (type, shape with the contiguous dimension last, bytes)."""

    def __init__(self, path):
        self.data, self.at = pathlib.Path(path).read_bytes(), 8
        tensors, pairs = self.number("Q"), self.number("Q")
        self.keys, self.key_types = {}, {}
        for _ in range(pairs):
            key = self.text()
            self.key_types[key] = self.number("I")
            self.keys[key] = self.value(self.key_types[key])
        entries = []
        for _ in range(tensors):
            name = self.text()
            dims = [self.number("Q") for _ in range(self.number("I"))]
            entries.append((name, dims[::-1], self.number("I"), self.number("Q")))
        begin = -(-self.at // 32) * 32
        self.tensors, self.types = {}, {}
        for name, shape, kind, offset in entries:
            self.types[name] = kind
            if kind in TYPES:
                size = TYPES[kind][1]
                for dim in shape:
                    size *= dim
                self.tensors[name] = (TYPES[kind][0], shape, self.data[begin + offset:begin + offset + size])

    def number(self, code):
        value, = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == 9:
            inner, count = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(count)]
        return self.text() if kind == 8 else self.number(PLAIN[kind])

    def floats(self, name):
        kind, _, data = self.tensors[name]
        return list(struct.unpack(f"<{len(data) // (2 if kind == 'F16' else 4)}{'e' if kind == 'F16' else 'f'}", data))


def save(path, tensors):
    """A safetensors file of name -> (type, shape, bytes)."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


DECODER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
           "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
           "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
           "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
           "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NAMES = {
    "gemma3": DECODER | {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
                         "post_ffw_norm": "post_feedforward_layernorm"},
    "phi3": DECODER | {"ffn_up": "mlp.gate_up_proj"},
    "bert": {"token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
             "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
             "attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
             "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
             "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
             "cls": "classifier.dense", "cls.output": "classifier.out_proj"},
}
OF_PADDING = 2  # positions that XLM-RoBERTa's texts do not have


def hf_name(architecture, name):
    stem, _, kind = name.rpartition(".")
    layers = "encoder.layer." if architecture == "bert" else "model.layers."
    prefix = ""
    if stem.startswith("blk."):
        _, layer, stem = stem.split(".", 2)
        prefix = f"{layers}{layer}."
    return f"{prefix}{NAMES.get(architecture, DECODER)[stem]}.{kind}"


def is_xlm_roberta(gguf):
    return gguf.keys["general.architecture"] == "bert" and gguf.keys["tokenizer.ggml.model"] == "t5"


def hf_tensors(gguf):
    """The tensors as a Hugging Face file has them."""
    architecture, out = gguf.keys["general.architecture"], {}
    for name, (kind, shape, data) in gguf.tensors.items():
        if name.startswith("rope_"):
            continue
        if architecture == "llama" and name.split(".")[-2] in ("attn_q", "attn_k"):
            dim = gguf.keys["llama.rope.dimension_count"]
            size = len(data) // shape[0]
            rows = [data[i:i + size] for i in range(0, len(data), size)]
            data = b"".join(rows[head + 2 * i + j] for head in range(0, shape[0], dim) for j in (0, 1)
                            for i in range(dim // 2))
        if is_xlm_roberta(gguf) and name == "position_embd.weight":
            data, shape = bytes(OF_PADDING * len(data) // shape[0]) + data, [shape[0] + OF_PADDING, shape[1]]
        if architecture == "gemma3" and name.endswith("norm.weight"):
            less = array.array("f", (value - 1 for value in gguf.floats(name)))
            kind, data = "F32", less.tobytes()
        out[hf_name(architecture, name)] = (kind, shape, data)
    return out


def byte_level(pre):
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": pre not in SPLITS}
    if pre in SPLITS:
        first = {"type": "Split", "pattern": {"Regex": SPLITS[pre]}, "behavior": "Isolated", "invert": False}
    else:  # smollm
        first = {"type": "Digits", "individual_digits": True}
    return {"type": "Sequence", "pretokenizers": [first, last]}


def tokenizer_json(keys):
    get = lambda name, otherwise=None: keys.get("tokenizer.ggml." + name, otherwise)
    tokens, types, model = get("tokens"), get("token_type"), get("model")
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": types[i] in (2, 3)} for i, token in enumerate(tokens) if types[i] in (2, 3, 4)]
    out = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
           "pre_tokenizer": None, "post_processor": None, "decoder": None}
    vocab = {token: i for i, token in enumerate(tokens)}
    if model == "bert":
        spell = lambda t: t if t.startswith("[") else t[1:] if t.startswith("\u2581") else "##" + t
        out["normalizer"] = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                             "strip_accents": None, "lowercase": True}
        out["pre_tokenizer"] = {"type": "BertPreTokenizer"}
        out["model"] = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                        "max_input_chars_per_word": 100, "vocab": {spell(t): i for t, i in vocab.items()}}
        return out
    if model == "t5":
        rules = base64.b64encode(bytes(get("precompiled_charsmap"))).decode()
        out["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": rules}
        out["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}]}
        out["model"] = {"type": "Unigram", "unk_id": get("unknown_token_id"), "byte_fallback": False,
                        "vocab": [[token, score] for token, score in zip(tokens, get("scores"))]}
        first, last = ({"SpecialToken": {"id": tokens[get(f"{end}_token_id")], "type_id": 0}} for end in ("bos", "eos"))
        a, b = ({"Sequence": {"id": text, "type_id": 0}} for text in "AB")
        out["post_processor"] = {"type": "TemplateProcessing", "single": [first, a, last], "pair": [first, a, last, last, b, last]}
        return out
    if model == "gpt2":
        out["pre_tokenizer"] = byte_level(get("pre"))
        out["model"] = {"type": "BPE", "unk_token": None, "byte_fallback": False, "ignore_merges": get("pre") == "llama-bpe",
                        "vocab": vocab, "merges": [merge.split(" ") for merge in get("merges")]}
        return out
    # What transformers makes of a SentencePiece model: all pairs that make a token, in the order of its score.
    scores, merges = get("scores"), []
    for token in sorted((t for t, i in vocab.items() if types[i] == 1 and len(t) > 1), key=lambda t: -scores[vocab[t]]):
        merges += [f"{token[:cut]} {token[cut:]}" for cut in range(1, len(token))
                   if token[:cut] in vocab and token[cut:] in vocab]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    prepend = {"type": "Prepend", "prepend": "\u2581"}
    out["normalizer"] = {"type": "Sequence", "normalizers": [prepend, replace]} if get("add_space_prefix", True) else replace
    out["model"] = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
                    "merges": merges}
    if get("add_bos_token"):
        bos = tokens[get("bos_token_id")]
        out["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}},
                                                                        {"Sequence": {"id": "A", "type_id": 0}}]}
    return out


def config_json(gguf):
    keys, architecture = gguf.keys, gguf.keys["general.architecture"]
    get = lambda name, otherwise=None: keys.get(f"{architecture}.{name}", otherwise)
    heads = get("attention.head_count")
    head_dim = get("attention.key_length", get("embedding_length") // heads)
    config = {"architectures": [architecture], "model_type": {"gemma3": "gemma3_text"}.get(architecture, architecture),
              "vocab_size": len(keys["tokenizer.ggml.tokens"]), "hidden_size": get("embedding_length"),
              "num_hidden_layers": get("block_count"), "num_attention_heads": heads,
              "intermediate_size": get("feed_forward_length"), "max_position_embeddings": get("context_length"),
              "rope_scaling": None, "quantization_config": None}
    if is_xlm_roberta(gguf):
        config |= {"architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta", "pad_token_id": OF_PADDING - 1}
        config["max_position_embeddings"] += OF_PADDING
    if architecture == "bert":
        return config | {"layer_norm_eps": get("attention.layer_norm_epsilon"), "hidden_act": "gelu",
                         "type_vocab_size": gguf.tensors["token_types.weight"][1][0]}
    config |= {"num_key_value_heads": get("attention.head_count_kv"), "head_dim": head_dim,
               "rms_norm_eps": get("attention.layer_norm_rms_epsilon"), "rope_theta": get("rope.freq_base"),
               "tie_word_embeddings": "output.weight" not in gguf.types}
    if get("rope.scaling.type") == "yarn":
        config["rope_scaling"] = {"rope_type": "yarn", "factor": get("rope.scaling.factor"),
                                  "original_max_position_embeddings": get("rope.scaling.original_context_length")}
    elif get("rope.scaling.factor"):
        config["rope_scaling"] = {"type": "linear", "factor": get("rope.scaling.factor")}
    if "rope_freqs.weight" in gguf.tensors:
        config["rope_scaling"] = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                  "original_max_position_embeddings": 8192}
    if architecture == "gemma3":
        config |= {"sliding_window": get("attention.sliding_window"), "query_pre_attn_scalar": head_dim,
                   "rope_local_base_freq": 10000.0, "hidden_activation": "gelu_pytorch_tanh"}
    else:
        config["hidden_act"] = "silu"
    if architecture == "phi3":
        config |= {"partial_rotary_factor": get("rope.dimension_count") / head_dim, "sliding_window": 8,
                   "original_max_position_embeddings": get("rope.scaling.original_context_length"),
                   "rope_scaling": {"type": "longrope", "attention_factor": get("rope.scaling.attn_factor"),
                                    "long_factor": gguf.floats("rope_factors_long.weight"),
                                    "short_factor": gguf.floats("rope_factors_short.weight")}}
    return config


def write_directory(gguf, folder, tensors=None, shards=1, **config):
    """The whole directory; `tensors` in place of the file's, `config` over its own."""
    folder.mkdir(parents=True)
    tensors = hf_tensors(gguf) if tensors is None else tensors
    write = lambda name, value: (folder / name).write_text(json.dumps(value), encoding="utf-8")
    write("config.json", config_json(gguf) | config)
    write("tokenizer.json", tokenizer_json(gguf.keys))
    tokens = gguf.keys["tokenizer.ggml.tokens"]
    roles = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad", "seperator": "sep", "cls": "cls", "mask": "mask"}
    settings = {f"{role}_token": tokens[gguf.keys[f"tokenizer.ggml.{key}_token_id"]] for key, role in roles.items()
                if f"tokenizer.ggml.{key}_token_id" in gguf.keys}
    if gguf.keys["tokenizer.ggml.model"] == "bert":  # whose releases call it otherwise
        settings["cls_token"] = settings.pop("bos_token")
    if gguf.keys.get("tokenizer.chat_template"):
        settings["chat_template"] = gguf.keys["tokenizer.chat_template"]
    write("tokenizer_config.json", settings)
    if gguf.keys.get("bert.pooling_type") == 2:
        (folder / "1_Pooling").mkdir()
        write("1_Pooling/config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    if shards == 1:
        save(folder / "model.safetensors", tensors)
        return folder
    names, index = sorted(tensors), {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save(folder / file, {name: tensors[name] for name in names[i::shards]})
        index |= {name: file for name in names[i::shards]}
    write("model.safetensors.index.json", {"metadata": {}, "weight_map": index})
    return folder
