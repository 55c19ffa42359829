"""Trains on the speech that `training.speech` makes meanwhile, by the clock, over as many calls as it takes.

The schedule covers `--seconds` of training altogether. The whole state is saved to `--state` every minute, so that a
run that was ended goes on where it was; where only exported weights are left (`--weights`), it goes on with fresh
optimisers. A file `snapshot` in `--state` asks for a checkpoint and a test while the training waits; `snapshot.done`
answers.
"""

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from training.model.batch_plans import SHORT_PHASE, Plans
from training.model.frontend import Frontend
from training.model.network import Muon, Sizes, Whisper
from training.model.windows import Plan, Planner
from training.speech import sounds
from training.speech.bank import Bank, resample
from training.speech.bank_index import SAMPLE_RATE
from training.speech.production import CTC_ALPHABET, KINDS
from training.tokenizer import Ids

logger = logging.getLogger(__name__)

PART_BYTES = 14 << 20
"""Weights are written in files no larger."""
CTC_UNTIL = 0.6
"""Share of the time after which the encoder no longer needs a loss of its own."""
MOST_PLANS = 96
"""Of cuFFT, each with a workspace on the device."""
FLAT_UNTIL = 0.45
"""The learning rate is constant until then, then falls to zero."""
WARM_UP_STEPS = 250
EMA = 0.9985
STAMP_SMOOTHING = ((-2, 0.08), (-1, 0.2), (0, 0.44), (1, 0.2), (2, 0.08))
"""A timestamp's neighbours (20 ms each) are nearly right."""


def parse_arguments(kind: type["Trainer"], arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=sys.modules[kind.__module__].__doc__)
    kind.add_arguments(parser)
    parser.add_argument("--bank", type=Path, required=True, help="folder that training.speech writes to")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="exported weights, history and test results")
    parser.add_argument("--tests", type=Path, help="folder of the test clips of training.speech")
    parser.add_argument("--weights", type=Path, help="exported weights to go on from if there is no state")
    parser.add_argument("--history", type=Path, help="train.json that came with them")
    parser.add_argument("--seconds", type=float, default=1440)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--encoder-layers", type=int, default=6)
    parser.add_argument("--decoder-layers", type=int, default=4)
    parser.add_argument("--batch-seconds", type=float, default=1920)
    parser.add_argument("--most-rows", type=int, default=256)
    parser.add_argument("--hours", type=float, default=600, help="room for speech on the device")
    parser.add_argument("--keep-hours", type=float, default=60, help="speech whose files are kept for a restart")
    parser.add_argument("--first-hours", type=float, default=1.0, help="speech to wait for before the first step")
    parser.add_argument("--sounds", type=int, default=800)
    parser.add_argument("--compile", type=int, default=1)
    parser.add_argument("--most-steps", type=int, default=10**9)
    parser.add_argument("--log-seconds", type=float, default=10)
    parser.add_argument("--muon-rate", type=float, default=0.015)
    parser.add_argument("--adam-rate", type=float, default=1.5e-3)
    return parser.parse_args(arguments)


def mel_filters() -> Tensor:
    from engine.model.log_mel import mel_filters as filters

    return filters(80)


def loss_of(hidden: Tensor, embedding: Tensor, targets: Tensor, first_timestamp: int) -> tuple[Tensor, Tensor]:
    """Cross-entropy, smoothed; and, for the log: text NLL, share of text tokens right, timestamp error in ms."""
    logits = F.linear(hidden, embedding.to(hidden.dtype)).float()
    log_sum = logits.logsumexp(-1)
    counts = targets >= 0
    wanted = targets.clamp_min(0)
    nll = log_sum - logits.gather(-1, wanted[..., None])[..., 0]
    is_stamp = wanted >= first_timestamp
    last = logits.shape[-1] - 1
    stamp_loss = torch.zeros_like(nll)
    for offset, weight in STAMP_SMOOTHING:
        near = (wanted + offset).clamp(first_timestamp, last)
        stamp_loss = stamp_loss + weight * (log_sum - logits.gather(-1, near[..., None])[..., 0])
    # Over text alone: any chance of a timestamp inside a doubtful word would end the sentence there, as the rule that
    # weighs all timestamps against the likeliest token has it.
    uniform = log_sum - logits[..., :first_timestamp].mean(-1)
    each = torch.where(is_stamp, stamp_loss, 0.95 * nll + 0.05 * uniform)
    is_text, is_stamp = (counts & ~is_stamp).float(), (counts & is_stamp).float()
    n_text, n_stamps = is_text.sum().clamp_min(1), is_stamp.sum().clamp_min(1)
    right = ((logits.argmax(-1) == wanted).float() * is_text).sum() / n_text
    off = (logits[..., first_timestamp:].argmax(-1) - (wanted - first_timestamp)).abs().clamp(max=50).float()
    shown = torch.stack([(nll * is_text).sum() / n_text, right, (off * is_stamp).sum() / n_stamps * 20])
    return (each * counts.float()).sum() / counts.float().sum().clamp_min(1), shown.detach()


class Trainer:
    planners: tuple[type[Planner], ...] = (Planner, Planner)
    """A process for each."""
    frozen: tuple[str, ...] = ()
    """How the names of parameters begin that stay as they are."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """What a kind of training is told besides."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = torch.device(args.device)
        self.is_cuda = self.device.type == "cuda"
        self.ids = Ids(args.tokenizer)
        self.tokenizer = Tokenizer.from_file(str(args.tokenizer))
        self.marks = [self.tokenizer.token_to_id(mark) for mark in (",", ".", "?")]
        self.sizes = Sizes(
            self.ids.vocab_size, len(CTC_ALPHABET) + 1, args.d_model, args.encoder_layers, args.decoder_layers
        )
        self.model = Whisper(self.sizes).to(self.device)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and not name.startswith(self.frozen))
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        self.trained = [p for _, p in named]
        matrices = [p for name, p in named if ".layers." in name and p.dim() == 2]
        tokens = [p for name, p in named if "embed_tokens" in name]
        rest = [p for name, p in named if not (".layers." in name and p.dim() == 2) and "embed_tokens" not in name]
        self.muon = Muon(matrices)
        groups = [{"params": rest, "factor": 1.0}, {"params": tokens, "factor": 0.7}]
        self.adam = torch.optim.AdamW(
            groups, lr=args.adam_rate, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=self.is_cuda
        )
        self.parameters = list(self.model.parameters())
        self.ema = [p.detach().clone() for p in self.parameters]
        self.step, self.elapsed_before, self.steps_since_fresh = 0, 0.0, 0
        self.seen_h = 0.0
        self.history: list[dict[str, Any]] = []
        self.tests: list[dict[str, Any]] = []
        self._restore()
        self.seconds = args.seconds
        self.began = time.monotonic()

    def _warm_up(self, plan: Plan, bank: Bank, frontend: Frontend, loss_function: Any) -> None:
        """Compile in a step without effect, before the clock starts."""
        began = time.monotonic()
        self._gradients(plan, bank, frontend, loss_function)
        for parameter in self.trained:
            parameter.grad = None
        logger.info("the first step took %.0f s", time.monotonic() - began)
        self.began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return self.elapsed_before + time.monotonic() - self.began

    @property
    def progress(self) -> float:
        """Share of the schedule's time; the file `seconds` in the state's folder may change that time."""
        return self.elapsed_s / self.seconds

    # Saving and going on

    def _restore(self) -> None:
        file = self.args.state / "state.pt"
        if file.exists():
            state = torch.load(file, map_location=self.device, weights_only=False)
            self.model.load_state_dict(state["model"])
            for average, saved in zip(self.ema, state["ema"], strict=True):
                average.copy_(saved)
            self.adam.load_state_dict(state["adam"])
            for shape, saved in state["muon"].items():
                self.muon.averages[shape].copy_(saved)
            self.steps_since_fresh = state["step"]
            self._read_history(state)
            logger.info("going on from the state at step %d, %.0f s", self.step, self.elapsed_before)
        elif self.args.weights is not None and self.args.history is not None and self.args.history.exists():
            self._load_weights(self.args.weights)
            self._read_history(json.loads(self.args.history.read_text()))
            logger.info("going on from weights at step %d, %.0f s", self.step, self.elapsed_before)

    def _load_weights(self, file: Path) -> None:
        weights = load_file(file)
        missing, extra = self.model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        assert set(missing) <= {"ctc.weight", "ctc.bias", "proj_out.weight"}, missing
        assert set(extra) <= {"proj_out.weight"}, extra
        for average, parameter in zip(self.ema, self.parameters, strict=True):
            average.copy_(parameter)

    def _read_history(self, state: dict[str, Any]) -> None:
        self.step, self.elapsed_before = state["step"], state["elapsed_s"]
        self.seen_h, self.history, self.tests = state["seen_h"], state["history"], state["tests"]

    def _facts(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "elapsed_s": round(self.elapsed_s, 1),
            "seen_h": round(self.seen_h, 1),
            "history": self.history,
            "tests": self.tests,
        }

    def save_state(self) -> None:
        state = self._facts() | {
            "model": self.model.state_dict(),
            "ema": self.ema,
            "adam": self.adam.state_dict(),
            "muon": self.muon.averages,
        }
        partial = self.args.state / "state.tmp"
        torch.save(state, partial)
        partial.rename(self.args.state / "state.pt")

    def save_weights(self, bank: Bank) -> None:
        """The averaged weights in float16 under the names of transformers, in parts, and `train.json`."""
        out = self.args.out
        out.mkdir(parents=True, exist_ok=True)
        parts: list[dict[str, Tensor]] = [{}]
        size = 0
        for (name, _), average in zip(self.model.named_parameters(), self.ema, strict=True):
            if name.startswith("ctc."):
                continue
            tensor = average.detach().half().cpu().contiguous()
            if size + tensor.nbytes > PART_BYTES:
                parts.append({})
                size = 0
            parts[-1][name] = tensor
            size += tensor.nbytes
        for index, part in enumerate(parts):
            save_file(part, out / f"weights-{index}.safetensors")
        hours = {kind: round(float(h), 1) for kind, h in zip(KINDS, bank.hours_by_kind, strict=True)}
        sizes = {
            "d_model": self.sizes.d_model,
            "encoder_layers": self.sizes.encoder_layers,
            "decoder_layers": self.sizes.decoder_layers,
            "vocab_size": self.sizes.vocab_size,
        }
        facts = self._facts() | {"sizes": sizes, "hours": hours, "sentences": bank.n_sentences}
        (out / "train.json").write_text(json.dumps(facts, indent=1))

    # Training

    def run(self) -> None:
        args = self.args
        plans = Plans(args, self.planners, self.ids, os.getpid() % 1000 * 100, self.marks, self.progress)
        bank = Bank(args.bank, args.hours, self.device, args.keep_hours, plans.add)
        while bank.hours < args.first_hours:
            bank.poll()
            time.sleep(0.2)
        logger.info("%.1f h of speech to begin with", bank.hours)
        bank.start()
        window = int(30 * SAMPLE_RATE)
        frontend = Frontend(
            self.device, mel_filters(), sounds.make_all(args.sounds, window + 2 * SAMPLE_RATE, self.device)
        )
        logger.info("%d sounds after %.0f s", args.sounds, time.monotonic() - self.began)
        loss_function = loss_of
        if args.compile:
            torch._dynamo.config.recompile_limit = 64
            torch._dynamo.config.suppress_errors = True  # slower without, but not lost
            for layer in [*self.model.model.encoder.layers, *self.model.model.decoder.layers]:
                layer.compile(dynamic=True)
            loss_function = torch.compile(loss_of, dynamic=True)
        self._warm_up(plans.next(self.progress), bank, frontend, loss_function)
        saved_at, waited_s, logged_at, logged_step, rows_seen = time.monotonic(), 0.0, time.monotonic(), self.step, 0
        while self.progress < 1 and self.step < args.most_steps:
            asked_at = time.monotonic()
            plan = plans.next(self.progress)
            waited_s += time.monotonic() - asked_at
            shown = self._step(plan, bank, frontend, loss_function)
            rows_seen += len(plan.inputs)
            now = time.monotonic()
            if now - logged_at >= args.log_seconds or self.step <= 3:
                self._log(shown, plan, bank, now - logged_at, self.step - logged_step, waited_s, rows_seen)
                waited_s, logged_at, logged_step, rows_seen = 0.0, now, self.step, 0
                told = self.args.state / "seconds"
                self.seconds = float(told.read_text()) if told.exists() else self.seconds
            if now - saved_at >= 60:
                self.save_state()
                saved_at = now
            if (args.state / "snapshot").exists():
                self.snapshot(bank, frontend)
                logged_at = saved_at = time.monotonic()
        bank.stopping = True
        plans.stop()
        self.save_state()
        self.snapshot(bank, frontend)
        (args.state / "finished").touch()
        logger.info("finished: %d steps, %.0f s", self.step, self.elapsed_s)

    def _moved(self, array: Any) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.is_cuda else tensor

    @torch.no_grad()
    def _mel(self, plan: Plan, bank: Bank, frontend: Frontend) -> Tensor:
        """What is heard in the planned windows: `(rows, n_mels, frames)`."""
        moved, progress = self._moved, self.progress
        rows, total = len(plan.inputs), int(plan.places[:, 3].sum())
        audio = frontend.mix(bank, rows, int(plan.seconds * SAMPLE_RATE), total, moved(plan.places), moved(plan.speeds))
        audio = frontend.augment(audio, moved(plan.has_speech), moved(plan.ends), min(1.0, 0.3 + 4 * progress))
        return frontend.mask(frontend.log_mel(audio), 0.5 if progress < 0.75 else 0.25)

    def _gradients(self, plan: Plan, bank: Bank, frontend: Frontend, loss_function: Any) -> dict[str, Tensor]:
        """Of a batch, left in the parameters; what the log shows."""
        moved, progress = self._moved, self.progress
        mel = self._mel(plan, bank, frontend)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_cuda):
            states = self.model.model.encoder(mel)
            hidden = self.model.model.decoder(moved(plan.inputs), states)
            embedding = self.model.model.decoder.embed_tokens.weight
            loss, shown = loss_function(hidden, embedding, moved(plan.targets), self.ids.first_timestamp)
            classes = self.model.ctc(states) if progress < CTC_UNTIL else None
        ctc = torch.zeros_like(loss)
        if classes is not None:
            ctc = self._ctc(classes, moved(plan.classes), plan.class_counts)
        ctc_weight = 0.5 if progress < SHORT_PHASE else 0.25 * (1 - progress)
        (loss + ctc_weight * ctc).backward()
        return {"loss": loss.detach(), "shown": shown, "ctc": ctc.detach()}

    def _step(self, plan: Plan, bank: Bank, frontend: Frontend, loss_function: Any) -> dict[str, Tensor]:
        progress = self.progress
        found = self._gradients(plan, bank, frontend, loss_function)
        norm = torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.steps_since_fresh += 1
        rate = self.rate(progress)
        for group in self.adam.param_groups:
            group["lr"] = self.args.adam_rate * group["factor"] * rate
        self.adam.step()
        self.muon.step(self.args.muon_rate * rate)
        for parameter in self.trained:
            parameter.grad = None
        self.step += 1
        with torch.no_grad():
            torch._foreach_lerp_(self.ema, self.parameters, 1 - min(EMA, self.step / (self.step + 20)))
        self.seen_h += len(plan.inputs) * plan.seconds / 3600
        return found | {"norm": norm}

    def _ctc(self, classes: Tensor, wanted: Tensor, counts: NDArray[np.int64]) -> Tensor:
        """Loss per character, of the window's encoder states `(rows, states, classes)`."""
        rows, n_states, _ = classes.shape
        losses = F.ctc_loss(
            classes.float().log_softmax(-1).transpose(0, 1),
            wanted,
            torch.full((rows,), n_states, dtype=torch.long),
            torch.from_numpy(counts),
            reduction="none",
            zero_infinity=True,
        )
        # By frames where little or nothing is said, or empty windows would swamp the gradient.
        return (losses / torch.from_numpy(np.maximum(counts, n_states // 10)).to(self.device)).mean()

    def rate(self, progress: float) -> float:
        """Learning rate as a share of the full one."""
        warm_up = min(1.0, (self.steps_since_fresh + 1) / WARM_UP_STEPS)
        return warm_up * min(1.0, max(0.0, (1 - progress) / (1 - FLAT_UNTIL))) + 0.003

    def _log(
        self, shown: dict[str, Tensor], plan: Plan, bank: Bank, took_s: float, steps: int, waited_s: float, rows: int
    ) -> None:
        nll, right, stamp_ms = shown["shown"].tolist()
        row = {
            "step": self.step,
            "s": round(self.elapsed_s, 1),
            "window_s": plan.seconds,
            "loss": round(float(shown["loss"]), 3),
            "nll": round(nll, 3),
            "ctc": round(float(shown["ctc"]), 3),
            "token_acc": round(right, 4),
            "stamp_ms": round(stamp_ms, 1),
            "norm": round(float(shown["norm"]), 2),
            "rate": round(self.rate(self.progress), 3),
            "bank_h": round(bank.hours, 1),
            "seen_h": round(self.seen_h, 1),
            "step_ms": round(took_s / max(1, steps) * 1e3, 1),
            "windows_per_s": round(rows / max(took_s, 1e-9), 1),
            "waited_s": round(waited_s, 2),
        }
        self.history.append(row)
        logger.info("%s", json.dumps(row))
        if not np.isfinite(row["loss"]):
            raise FloatingPointError(f"expected a finite loss, got {row['loss']} at step {self.step}")

    # Looking

    def snapshot(self, bank: Bank, frontend: Frontend) -> None:
        """Write the averaged weights, test them, and say so."""
        began = time.monotonic()
        self.save_weights(bank)
        if self.args.tests is not None:
            try:
                self.tests.append({"step": self.step, **self._test(frontend)})
                self.save_weights(bank)
            except Exception:
                logger.exception("the test failed")
        (self.args.state / "snapshot").unlink(missing_ok=True)
        (self.args.state / "snapshot.done").touch()
        logger.info("snapshot at step %d took %.1f s", self.step, time.monotonic() - began)

    @torch.no_grad()
    def _test(self, frontend: Frontend) -> dict[str, Any]:
        """WER on clean single sentences by voice, each in a short window, and one voice in full windows as well."""
        network = Whisper(self.sizes).to(self.device)
        for parameter, average in zip(network.parameters(), self.ema, strict=True):
            parameter.copy_(average)
        results: dict[str, Any] = {}
        assert self.args.tests is not None
        for file in sorted(self.args.tests.glob("*.npz")):
            arrays = np.load(file)
            for seconds in (10.0, 30.0) if file.stem == "espeak-seen" else (10.0,):
                clips, texts = self._clips(arrays, seconds)
                if not clips:
                    continue
                heard = self._transcribe(network, frontend, clips, seconds)
                name = f"{file.stem}@{seconds:.0f}s"
                results[name] = round(word_error_rate(texts, heard), 4)
                logger.info("%-24s WER %.3f of %d clips", name, results[name], len(clips))
                for text, words in list(zip(texts, heard, strict=True))[:3]:
                    logger.info("    %s\n    %s", text, words)
        for kind in sounds.KINDS:
            random_ = sounds.Random(self.device, 7)
            clips = [sounds.make(kind, 6 * SAMPLE_RATE, random_) * 0.2 for _ in range(6)]
            heard = [words for words in self._transcribe(network, frontend, clips, 10.0) if words]
            results[f"sound-{kind}"] = len(heard)
            logger.info("%-24s words on %d of %d %s", f"sound-{kind}", len(heard), len(clips), heard[:2])
        return results

    def _clips(self, arrays: Any, seconds: float) -> tuple[list[Tensor], list[str]]:
        rate, position = int(arrays["sample_rate"]), 0
        clips, texts = [], []
        for n_samples, text in zip(arrays["n_samples"].tolist(), arrays["texts"].tolist(), strict=True):
            clip = torch.from_numpy(arrays["audio"][position : position + n_samples]).to(self.device).float() / 32768
            position += n_samples
            clip = clip if rate == SAMPLE_RATE else resample(clip, rate)
            if len(clip) < (seconds - 0.5) * SAMPLE_RATE:
                clips.append(F.pad(clip, (4000, 0)))
                texts.append(str(text))
        return clips, texts

    def _transcribe(self, network: Whisper, frontend: Frontend, clips: list[Tensor], seconds: float) -> list[str]:
        prefix = [self.ids.start, self.ids.english, self.ids.transcribe, self.ids.no_timestamps]
        heard: list[str] = []
        for start in range(0, len(clips), 64):
            some = clips[start : start + 64]
            n_samples = int(seconds * SAMPLE_RATE)
            audio = torch.stack([F.pad(clip, (0, n_samples - len(clip))) for clip in some])
            mel = frontend.log_mel(audio)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_cuda):
                states = network.model.encoder(mel)
                tokens = torch.tensor([prefix] * len(some), device=self.device)
                ended = torch.zeros(len(some), dtype=torch.bool, device=self.device)
                for _ in range(80):
                    logits = network.logits(network.model.decoder(tokens, states)[:, -1]).float()
                    logits[:, self.ids.first_timestamp :] = -1e9
                    best = logits.argmax(-1).masked_fill(ended, self.ids.end)
                    ended |= best == self.ids.end
                    tokens = torch.cat([tokens, best[:, None]], 1)
                    if bool(ended.all()):
                        break
            pieces = ([token for token in row if token < self.ids.end] for row in tokens[:, len(prefix) :].tolist())
            heard += [self.tokenizer.decode(row).strip() for row in pieces]
        return heard


def word_error_rate(references: list[str], hypotheses: list[str]) -> float:
    errors = words = 0
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        wanted, heard = _words(reference), _words(hypothesis)
        distances = list(range(len(heard) + 1))
        for i, word in enumerate(wanted, 1):
            diagonal, distances[0] = distances[0], i
            for j, other in enumerate(heard, 1):
                best = min(distances[j] + 1, distances[j - 1] + 1, diagonal + (word != other))
                diagonal, distances[j] = distances[j], best
        errors += distances[-1]
        words += len(wanted)
    return errors / max(1, words)


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "'" else " " for letter in text.lower()).split()


def main(kind: type[Trainer] = Trainer) -> None:
    args = parse_arguments(kind)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    args.state.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1 + os.getpid())
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    if args.device == "cuda":
        torch.backends.cuda.cufft_plan_cache.max_size = MOST_PLANS
    trainer = kind(args)
    n_parameters = sum(p.numel() for name, p in trainer.model.named_parameters() if not name.startswith("ctc."))
    logger.info("%.2f M parameters, torch %s", n_parameters / 1e6, torch.__version__)
    trainer.run()


if __name__ == "__main__":
    main()
