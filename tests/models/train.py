"""Trains the tiny models that the tests serve: a Qwen3 target with a DFlash and a DSpark drafter, over Python source.

    python tests/models/train.py --out tests/models --minutes 3

Everything starts from the running interpreter's own files: corpus, tokenizer, models and held-out prompts (README.md).
"""

import argparse
import hashlib
import json
import logging
import math
import random
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

EOS, PAD, MASK = 0, 1, 2
SPECIAL_TOKENS = {EOS: "<|endoftext|>", PAD: "<|pad|>", MASK: "<|mask|>"}
VOCAB = 2048
HIDDEN = 192
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
TARGET_LAYERS, TARGET_MLP = 4, 512
DRAFT_LAYERS, DRAFT_MLP = 2, 448
DRAFT_TOKENS = 7
MARKOV_RANK = 32
MAX_POSITIONS = 8192
ROPE_THETA = 10_000.0
RMS_EPS = 1e-6
# Index i means the output of layer i. Not the last: transformers hands it out after the final norm, vLLM before it.
AUX_LAYERS = (0, 1, 2)
HELD_OUT_FILES = 64

Kind = Literal["dflash", "dspark"]

log = logging.getLogger("train")


@dataclass(frozen=True)
class Scale:
    """How much of everything; context is in tokens, anchors are draft blocks a sequence."""

    corpus_bytes: int
    context: int
    batch: int
    anchors: int
    prompt_tokens: int
    answer_tokens: int


FULL = Scale(60_000_000, context=2048, batch=16, anchors=96, prompt_tokens=256, answer_tokens=128)
SMOKE = Scale(2_000_000, context=256, batch=4, anchors=8, prompt_tokens=64, answer_tokens=32)


@dataclass(frozen=True)
class Budget:
    """When a training run ends: after an amount of steps or of seconds."""

    amount: float
    unit: Literal["steps", "seconds"]

    def progress(self, step: int, seconds: float) -> float:
        return (step if self.unit == "steps" else seconds) / self.amount


# --- corpus ---------------------------------------------------------------------------------------------------------


def source_texts(root: Path) -> dict[str, str]:
    """Python files below root by content digest, in digest order: copies fall together, packages mix.

    Nested package folders and files over 200 kB (tables, generated code) are left out.
    """
    texts: dict[str, str] = {}
    for path in root.rglob("*.py"):
        if {"site-packages", "dist-packages"} & set(path.relative_to(root).parts) or path.stat().st_size > 200_000:
            continue
        data = path.read_bytes()
        try:
            texts[hashlib.sha256(data).hexdigest()] = data.decode()
        except UnicodeDecodeError:
            continue
    return dict(sorted(texts.items()))


def corpus(size: int) -> tuple[list[str], list[str]]:
    """Training texts (at most size bytes) and HELD_OUT_FILES standard-library texts that are not among them."""
    paths = sysconfig.get_paths()
    library = source_texts(Path(paths["stdlib"]))
    packages = source_texts(Path(paths["purelib"]))
    plain = [digest for digest, text in library.items() if text.isascii() and len(text) > 6000]
    held_out = [library.pop(digest) for digest in plain[:HELD_OUT_FILES]]
    for digest in plain[:HELD_OUT_FILES]:
        packages.pop(digest, None)
    train: list[str] = []
    room = size
    for text in {**library, **packages}.values():
        room -= len(text.encode())
        if room < 0:
            break
        train.append(text)
    return train, held_out


def make_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE of VOCAB tokens, trained on about 20 MB of texts; the special tokens have the lowest ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[SPECIAL_TOKENS[i] for i in sorted(SPECIAL_TOKENS)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    stride = max(1, round(sum(map(len, texts)) / 20_000_000))
    tokenizer.train_from_iterator(texts[::stride], trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> NDArray[np.uint16]:
    """All texts as one row of token ids, each text closed by EOS."""
    rows: list[NDArray[np.uint16]] = []
    for start in range(0, len(texts), 512):  # an Encoding is far larger than its ids: keep few of them at a time
        for encoding in tokenizer.encode_batch_fast(texts[start : start + 512]):
            rows.append(np.array([*encoding.ids, EOS], dtype=np.uint16))
    return np.concatenate(rows)


def make_prompts(tokenizer: Tokenizer, texts: list[str]) -> list[str]:
    """One prompt of 300 to 400 tokens from each text, starting at a line a quarter into it."""
    lengths = random.Random(0)
    prompts = []
    for text in texts:
        body = text[text.index("\n", len(text) // 4) + 1 :]
        prompts.append(tokenizer.decode(tokenizer.encode(body).ids[: lengths.randint(300, 400)]))
    return prompts


# --- training loop --------------------------------------------------------------------------------------------------


def make_optimizer(module: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    parameters = list(module.parameters())
    fused = parameters[0].is_cuda
    return torch.optim.AdamW(parameters, weight_decay=weight_decay, betas=(0.9, 0.95), fused=fused)


def training_steps(budget: Budget, optimizer: torch.optim.Optimizer, peak: float = 2e-3) -> Iterator[int]:
    """Step numbers until the budget is spent; sets the learning rate (warm-up, then a cosine to 5% of peak)."""
    started = time.monotonic()
    step = 0
    while (progress := budget.progress(step, time.monotonic() - started)) < 1:
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, (step + 1) / 50) * (0.95 * cosine + 0.05)
        yield step
        step += 1
    log.info("  %d steps in %.0f s", step, time.monotonic() - started)


def descend(loss: Tensor, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()


def draw_batch(ids: Tensor, scale: Scale) -> Tensor:
    """Random windows of ids: int64 [batch, context]."""
    starts = torch.randint(0, len(ids) - scale.context, (scale.batch, 1), device=ids.device)
    return ids[starts + torch.arange(scale.context, device=ids.device)]


# --- target ---------------------------------------------------------------------------------------------------------


def train_target(ids: Tensor, scale: Scale, budget: Budget) -> Qwen3ForCausalLM:
    """A Qwen3 model trained on ids, returned frozen in bfloat16."""
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=TARGET_MLP,
        num_hidden_layers=TARGET_LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        rms_norm_eps=RMS_EPS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    target = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    nn.Module.to(target, ids.device)
    optimizer = make_optimizer(target, weight_decay=0.05)
    for step in training_steps(budget, optimizer):
        tokens = draw_batch(ids, scale)
        with torch.autocast(ids.device.type, torch.bfloat16):
            logits = target(tokens, use_cache=False).logits
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())
        descend(loss, target, optimizer)
        if step % 100 == 0:
            log.info("  step %4d  loss %.3f", step, loss.item())
    nn.Module.to(target, torch.bfloat16)
    target.train(False).requires_grad_(False)
    return target


@torch.no_grad()
def read_target(target: Qwen3ForCausalLM, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The target's logits [batch, context, VOCAB] and auxiliary hidden states [batch, context, aux * HIDDEN]."""
    output = target(tokens, output_hidden_states=True, use_cache=False)
    # hidden_states[0] is the embedding, so the output of layer i is hidden_states[i + 1].
    return output.logits, torch.cat([output.hidden_states[i + 1] for i in AUX_LAYERS], -1)


# --- drafters -------------------------------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = F.rms_norm(x.float(), x.shape[-1:], self.weight.float(), RMS_EPS)
        return normed.to(x.dtype)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding (halves, not pairs) of x [batch, length, heads, HEAD_DIM] at positions [batch, length]."""
    frequencies = ROPE_THETA ** (-torch.arange(0, HEAD_DIM, 2, device=x.device) / HEAD_DIM)
    angles = (positions[..., None] * frequencies)[:, :, None]
    cos, sin = angles.cos(), angles.sin()
    left, right = x.float().chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1).to(x.dtype)


class Attention(nn.Module):
    """Attention of a draft block over the context's KV and its own."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.q_norm = RMSNorm(HEAD_DIM)
        self.k_norm = RMSNorm(HEAD_DIM)

    def kv(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        key = self.k_norm(self.k_proj(x).unflatten(-1, (KV_HEADS, HEAD_DIM)))
        return rotate(key, positions), self.v_proj(x).unflatten(-1, (KV_HEADS, HEAD_DIM))

    def forward(self, x: Tensor, positions: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        query = rotate(self.q_norm(self.q_proj(x).unflatten(-1, (HEADS, HEAD_DIM))), positions)
        context_positions = torch.arange(context.shape[1], device=x.device).expand(context.shape[:2])
        pairs = zip(self.kv(context, context_positions), self.kv(x, positions), strict=True)
        # GQA by repetition: with a mask, not every attention backend takes enable_gqa.
        key, value = (torch.cat(pair, 1).repeat_interleave(HEADS // KV_HEADS, 2).transpose(1, 2) for pair in pairs)
        mixed = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, attn_mask=mask)
        projected: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return projected


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, DRAFT_MLP, bias=False)
        self.up_proj = nn.Linear(HIDDEN, DRAFT_MLP, bias=False)
        self.down_proj = nn.Linear(DRAFT_MLP, HIDDEN, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return projected


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Attention()
        self.mlp = MLP()
        self.input_layernorm = RMSNorm(HIDDEN)
        self.post_attention_layernorm = RMSNorm(HIDDEN)

    def forward(self, x: Tensor, positions: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions, context, mask)
        changed: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return changed


class MarkovHead(nn.Module):
    """A low-rank bias on the next draft token given the token before it."""

    def __init__(self) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(VOCAB, MARKOV_RANK)
        self.markov_w2 = nn.Linear(MARKOV_RANK, VOCAB, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=0.02)

    def forward(self, previous: Tensor) -> Tensor:
        bias: Tensor = self.markov_w2(self.markov_w1(previous))
        return bias


class Drafter(nn.Module):
    """Drafts DRAFT_TOKENS tokens after each anchor in one pass; parameter names are those that vLLM loads.

    A block is the anchor token (the one known token at that position) and mask tokens. DFlash reads its draft from the
    masks, DSpark from every token of the block, one position ahead, with the Markov head on top.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.width = DRAFT_TOKENS + 1 if kind == "dflash" else DRAFT_TOKENS
        self.fc = nn.Linear(len(AUX_LAYERS) * HIDDEN, HIDDEN, bias=False)
        self.hidden_norm = RMSNorm(HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(DRAFT_LAYERS))
        self.norm = RMSNorm(HIDDEN)
        self.markov_head = MarkovHead() if kind == "dspark" else None

    def forward(self, target: Qwen3ForCausalLM, tokens: Tensor, aux: Tensor, anchors: Tensor) -> Tensor:
        """Draft logits [batch, anchors, DRAFT_TOKENS, VOCAB], without the Markov bias.

        tokens: int64 [batch, context]; aux: [batch, context, len(AUX_LAYERS) * HIDDEN]; anchors: int64 [batch, anchors]
        """
        block = torch.full((*anchors.shape, self.width), MASK, device=tokens.device)
        block[..., 0] = tokens.gather(1, anchors)
        positions = (anchors[..., None] + torch.arange(self.width, device=tokens.device)).flatten(1)
        mask = draft_mask(anchors, tokens.shape[1], self.width)
        context = self.hidden_norm(self.fc(aux))
        x = target.model.embed_tokens(block.flatten(1))
        for layer in self.layers:
            x = layer(x, positions, context, mask)
        x = self.norm(x).unflatten(1, block.shape[1:])
        logits: Tensor = target.lm_head(x[:, :, -DRAFT_TOKENS:])
        return logits

    def markov_bias(self, previous: Tensor) -> Tensor | float:
        """Bias [..., VOCAB] on the token after previous (int64 [...]); nothing for DFlash."""
        return 0.0 if self.markov_head is None else self.markov_head(previous)


def draft_mask(anchors: Tensor, context: int, width: int) -> Tensor:
    """A block sees what precedes its anchor, and itself: bool [batch, 1, blocks * width, context + blocks * width]."""
    batch, count = anchors.shape
    before = torch.arange(context, device=anchors.device) < anchors.repeat_interleave(width, 1)[..., None]
    block = torch.arange(count, device=anchors.device).repeat_interleave(width)
    itself = (block[:, None] == block).expand(batch, -1, -1)
    return torch.cat([before, itself], 2)[:, None]


def after(anchors: Tensor, first: int) -> Tensor:
    """The DRAFT_TOKENS positions from anchor + first on: int64 [batch, anchors, DRAFT_TOKENS]."""
    return anchors[..., None] + torch.arange(first, first + DRAFT_TOKENS, device=anchors.device)


def at(values: Tensor, positions: Tensor) -> Tensor:
    """values [batch, context, ...] at positions [batch, anchors, DRAFT_TOKENS]."""
    return values[torch.arange(len(values), device=values.device)[:, None, None], positions]


def train_drafter(kind: Kind, target: Qwen3ForCausalLM, ids: Tensor, scale: Scale, budget: Budget) -> Drafter:
    """A drafter distilled from the target's distributions, so that it learns what the target would accept."""
    drafter = Drafter(kind)
    drafter.to(ids.device)
    optimizer = make_optimizer(drafter, weight_decay=0.01)
    weights = 0.85 ** torch.arange(DRAFT_TOKENS, device=ids.device)  # a late token counts only if the early ones hold
    for step in training_steps(budget, optimizer):
        tokens = draw_batch(ids, scale)
        with torch.autocast(ids.device.type, torch.bfloat16):
            target_logits, aux = read_target(target, tokens)
            anchors = torch.randint(1, scale.context - DRAFT_TOKENS, (scale.batch, scale.anchors), device=ids.device)
            logits = drafter(target, tokens, aux, anchors) + drafter.markov_bias(at(tokens, after(anchors, 0)))
        teacher = at(target_logits, after(anchors, 0)).float().softmax(-1)
        losses = F.cross_entropy(logits.float().flatten(0, 2), teacher.flatten(0, 2), reduction="none")
        loss = (losses.view(logits.shape[:3]) * weights).mean() / weights.mean()
        descend(loss, drafter, optimizer)
        if step % 100 == 0:
            log.info("  step %4d  loss %.3f", step, loss.item())
    return drafter.to(torch.bfloat16).eval().requires_grad_(False)


# --- check ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def acceptance_length(drafter: Drafter, target: Qwen3ForCausalLM, prompts: Tensor, scale: Scale) -> float:
    """Mean tokens a draft step where the target answers prompts (int64 [batch, length]) at temperature 0."""
    options: dict[str, Any] = {"max_new_tokens": scale.answer_tokens, "min_new_tokens": scale.answer_tokens}
    tokens: Tensor = target.generate(  # type: ignore[misc, assignment]
        prompts, attention_mask=torch.ones_like(prompts), do_sample=False, **options
    )
    _, aux = read_target(target, tokens)
    anchors = torch.arange(prompts.shape[1], tokens.shape[1] - DRAFT_TOKENS, device=tokens.device).expand(
        len(tokens), -1
    )
    logits = drafter(target, tokens, aux, anchors)
    drafted = [tokens.gather(1, anchors)]
    for i in range(DRAFT_TOKENS):
        drafted.append((logits[:, :, i] + drafter.markov_bias(drafted[-1])).argmax(-1))
    right = torch.stack(drafted[1:], -1) == at(tokens, after(anchors, 1))
    return mean_stride((right.long().cumprod(-1).sum(-1) + 1).tolist())


def mean_stride(emitted: Iterable[list[int]]) -> float:
    """Mean length of the steps that a decoder takes through each row, where row[i] tokens are emitted from place i."""
    strides = []
    for row in emitted:
        place = 0
        while place < len(row):
            strides.append(row[place])
            place += row[place]
    return sum(strides) / len(strides)


# --- files ----------------------------------------------------------------------------------------------------------


def drafter_config(kind: Kind) -> dict[str, Any]:
    shared = {
        "model_type": "qwen3",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": DRAFT_MLP,
        "num_hidden_layers": DRAFT_LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_theta": ROPE_THETA,
        "rms_norm_eps": RMS_EPS,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "num_target_layers": TARGET_LAYERS,
        "layer_types": ["full_attention"] * DRAFT_LAYERS,
        "torch_dtype": "bfloat16",
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }
    if kind == "dflash":
        dflash = {"mask_token_id": MASK, "target_layer_ids": AUX_LAYERS}
        return shared | {
            "architectures": ["DFlashDraftModel"],
            "block_size": DRAFT_TOKENS + 1,
            "dflash_config": dflash,
        }
    return shared | {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": DRAFT_TOKENS,
        "target_layer_ids": AUX_LAYERS,
        "mask_token_id": MASK,
        "markov_rank": MARKOV_RANK,
        "enable_confidence_head": False,
    }


def save_target(target: Qwen3ForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    target.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)  # it only repeats config.json
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        eos_token=SPECIAL_TOKENS[EOS],
        pad_token=SPECIAL_TOKENS[PAD],
        mask_token=SPECIAL_TOKENS[MASK],
    )
    wrapped.save_pretrained(folder)


def save_drafter(drafter: Drafter, kind: Kind, folder: Path) -> None:
    """Weights and configuration only: embedding, head and tokenizer are the target's."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.contiguous() for name, weight in drafter.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(drafter_config(kind), indent=1) + "\n")


def log_size(model: nn.Module, folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.iterdir())
    parameters = sum(parameter.numel() for parameter in model.parameters())
    log.info("%s: %s parameters, %.2f MB", folder.name, f"{parameters:,}", size / 1e6)


# --- command --------------------------------------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the tiny target, DFlash and DSpark models of the tests.")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder that gets target/, dflash/, dspark/ and prompts.json"
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--minutes", type=float, default=3.0, help="training time of the three models together")
    amount.add_argument(
        "--steps", type=int, nargs=2, metavar=("TARGET", "DRAFTER"), help="training steps instead of time"
    )
    amount.add_argument("--smoke", action="store_true", help="a few steps on little text: a check that runs on a CPU")
    return parser.parse_args()


def budgets(arguments: argparse.Namespace) -> tuple[Budget, Budget]:
    """What the target may use, and what each drafter may use."""
    if arguments.smoke:
        return Budget(8, "steps"), Budget(8, "steps")
    if arguments.steps:
        return Budget(arguments.steps[0], "steps"), Budget(arguments.steps[1], "steps")
    seconds = 60 * arguments.minutes
    return Budget(0.4 * seconds, "seconds"), Budget(0.3 * seconds, "seconds")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)7d ms  %(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    arguments = parse_arguments()
    scale = SMOKE if arguments.smoke else FULL
    target_budget, drafter_budget = budgets(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)

    train, held_out = corpus(scale.corpus_bytes)
    tokenizer = make_tokenizer(train)
    ids = torch.from_numpy(encode(tokenizer, train).astype(np.int64)).to(device)
    log.info("corpus: %d files, %s tokens; tokenizer of %d", len(train), f"{len(ids):,}", tokenizer.get_vocab_size())

    prompts = make_prompts(tokenizer, held_out)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "prompts.json").write_text(json.dumps(prompts, indent=1) + "\n")
    cut = [tokenizer.encode(prompt).ids[: scale.prompt_tokens] for prompt in prompts]
    prompt_ids = torch.tensor(cut, device=device)

    log.info("target")
    target = train_target(ids, scale, target_budget)
    save_target(target, tokenizer, arguments.out / "target")
    log_size(target, arguments.out / "target")
    kinds: tuple[Kind, ...] = ("dflash", "dspark")
    for kind in kinds:
        log.info("%s", kind)
        drafter = train_drafter(kind, target, ids, scale, drafter_budget)
        save_drafter(drafter, kind, arguments.out / kind)
        log_size(drafter, arguments.out / kind)
        log.info("%s: acceptance length %.3f", kind, acceptance_length(drafter, target, prompt_ids, scale))
    folders = [arguments.out / name for name in ("target", *kinds)]
    total = sum(path.stat().st_size for folder in folders for path in folder.iterdir())
    log.info(
        "three models: %.2f MB; prompts: %.0f kB", total / 1e6, (arguments.out / "prompts.json").stat().st_size / 1e3
    )


if __name__ == "__main__":
    main()
