#!/usr/bin/env python3
"""Reads a memmap folder's newest version with Hugging Face's own code, and checks that it is complete.

    V/bin/python tests/tools/verify-slot-folder.py FOLDER [CHECKPOINT]

It needs safetensors, and checks that the first file in manifest.json opens, has the manifest's stamp and all tensors,
and, up to 16 MiB, the right digest (docs/design/digest.md, in Python's integers). With torch and transformers, and a
config.json in FOLDER/newest (copy it there, or give its CHECKPOINT), it checks that FOLDER/newest loads without a missing or
surplus tensor. With CHECKPOINT it also prints the largest difference between the logits of both.
It takes no lock: it copies, reads the manifest again, and starts again if the trainer was faster.
"""

import json
import pathlib
import sys

if {"-h", "--help"} & set(sys.argv[1:]):  # before the imports, which may fail
    print(__doc__)
    sys.exit(0)

import safetensors

import digest


def newest(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    if manifest.get("digest_number", 1) != digest.NUMBER:
        sys.exit(f"{folder}: its digests are of function {manifest.get('digest_number', 1)}, expected {digest.NUMBER}")
    return manifest["versions"][0]


def read_by_header(path):
    """A copy of every tensor's bytes, the metadata, and all data. (Bytes, since numpy has no bf16.)"""
    data = path.read_bytes()
    with safetensors.safe_open(path, framework="np") as file:  # safetensors checks the header
        names = set(file.keys())
        metadata = file.metadata()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    assert names == set(header), f"{path}: safetensors lists other tensors than the header"
    assert (8 + length) % 4096 == 0, f"{path}: the data does not begin on a page"
    tensors = {name: data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]]
               for name, entry in header.items()}
    return tensors, metadata, data[8 + length:]


def read_newest(folder):
    for _ in range(100):
        version = newest(folder)
        tensors, metadata, data = read_by_header(folder / version["file"])
        if newest(folder) == version or version in json.loads((folder / "manifest.json").read_text())["versions"]:
            return version, tensors, metadata, data
    sys.exit(f"{folder}: the trainer replaced the version a hundred times while it was read; set fresh=on, or try again")


def check(folder):
    version, tensors, metadata, data = read_newest(folder)
    wrong = [name for name, text in (("version", str(version["version"])), ("epoch", str(version["epoch"])))
             if metadata[f"bascule.{name}"].lstrip("0") != text]
    if metadata["bascule.digest"] != (version["digest"] or 32 * "-"):
        wrong.append("digest")
    if version["digest"] and len(data) <= 16 << 20 and digest.digest(data) != version["digest"]:
        wrong.append("digest of the bytes")
    if sum(map(len, tensors.values())) != version["bytes"]:
        wrong.append("bytes")
    if wrong:
        sys.exit(f"{version['file']}: not what the manifest says: {', '.join(wrong)}")
    tied = {alias: name for alias, name in metadata.items() if name in tensors}
    print(f"safetensors {safetensors.__version__}: version {version['version']} in {version['file']}: "
          f"{len(tensors)} tensors, {version['bytes']} bytes, tied: {tied or 'none'}")


def logits_of(folder, config):
    import torch
    import transformers
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, output_loading_info=True)
    wrong = {kind: names for kind, names in info.items() if names}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    print(f"transformers {transformers.__version__}: {folder}: {type(model).__name__}, {model.dtype}, "
          f"{model.num_parameters()} parameters")
    tokens = torch.arange(32)[None] * 7 % model.config.vocab_size
    with torch.no_grad():
        return model.eval()(tokens).logits.float()


def main():
    if len(sys.argv) not in (2, 3):
        print("verify-slot-folder: expected a folder, as tests/tools/verify-slot-folder.py /data/slots", file=sys.stderr)
        sys.exit(2)
    folder, checkpoint = pathlib.Path(sys.argv[1]), (pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None)
    check(folder)
    try:
        import transformers
    except ImportError:
        return print("transformers: not tried, since it is not installed")
    folder = folder / "newest"
    if checkpoint is None and not (folder / "config.json").exists():
        return print("transformers: not tried, since there is no config.json; copy it there, or name its checkpoint")
    config = transformers.AutoConfig.from_pretrained(checkpoint if checkpoint is not None else folder)
    read = logits_of(folder, config)
    if checkpoint is not None:
        print(f"largest difference of logits: {(read - logits_of(checkpoint, config)).abs().max().item():g}")


if __name__ == "__main__":
    main()
