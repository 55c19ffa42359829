"""Trains on speech that `training.speech` makes at the same time, for a given time and over one call or several.

The schedule takes `--seconds` of training in total. The whole state is saved to `--state` every minute, so that a run
that was ended continues where it was. If only exported weights are left (`--weights`), it continues with new
optimisers. A file `snapshot` in `--state` requests a checkpoint and a test. The training waits for them, and the file
`snapshot.done` reports that they are ready.
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
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor

from training.model.batch_plans import SHORT_PHASE, PlannerPool
from training.model.clip_test import ClipTest
from training.model.frontend import Frontend
from training.model.losses import character_loss, decoder_loss
from training.model.network import Sizes, Whisper
from training.model.optimisers import Optimisers
from training.model.run_record import RunRecord
from training.model.windows import BatchPlan, Planner
from training.speech import sounds
from training.speech.bank import Bank
from training.speech.bank_index import SAMPLE_RATE
from training.speech.production import CTC_ALPHABET, KINDS
from training.tokenizer import Ids, mark_ids

logger = logging.getLogger(__name__)

PART_BYTES = 14 << 20
"""Largest size of a file of exported weights, in bytes."""
CTC_UNTIL = 0.6
"""Share of the schedule after which the encoder no longer needs a loss of its own."""
MAX_CUFFT_PLANS = 96
"""Plans that cuFFT keeps; each has a workspace on the device."""
EMA = 0.9985
"""Decay of the moving average of the weights in each step."""
SAVE_EVERY_S = 60
"""Seconds between two saved states."""


def parse_arguments(kind: type["Trainer"], arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line of a kind of training."""
    parser = argparse.ArgumentParser(description=sys.modules[kind.__module__].__doc__)
    kind.add_arguments(parser)
    parser.add_argument("--bank", type=Path, required=True, help="folder into which training.speech writes speech")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json of training.tokenizer")
    parser.add_argument("--state", type=Path, required=True, help="folder for the saved state and for requests")
    parser.add_argument("--out", type=Path, required=True, help="folder for exported weights, history and test results")
    parser.add_argument("--tests", type=Path, help="folder with the test clips of training.speech")
    parser.add_argument("--weights", type=Path, help="exported weights to continue from if there is no saved state")
    parser.add_argument("--history", type=Path, help="train.json of these weights")
    parser.add_argument("--seconds", type=float, default=1440, help="length of the whole schedule")
    parser.add_argument("--device", default="cuda", help="device of PyTorch")
    parser.add_argument("--d-model", type=int, default=256, help="width of the network")
    parser.add_argument("--encoder-layers", type=int, default=6)
    parser.add_argument("--decoder-layers", type=int, default=4)
    parser.add_argument("--batch-seconds", type=float, default=1920, help="seconds of audio in a batch")
    parser.add_argument("--most-rows", type=int, default=256, help="most windows in a batch")
    parser.add_argument("--hours", type=float, default=600, help="hours of speech that fit on the device")
    parser.add_argument(
        "--keep-hours", type=float, default=60, help="hours of speech whose files are kept for a restart"
    )
    parser.add_argument(
        "--first-hours", type=float, default=1.0, help="hours of speech to wait for before the first step"
    )
    parser.add_argument("--sounds", type=int, default=800, help="number of sounds without speech")
    parser.add_argument("--compile", type=int, default=1, help="0: do not compile the network")
    parser.add_argument("--most-steps", type=int, default=10**9, help="end after this step")
    parser.add_argument("--log-seconds", type=float, default=10, help="seconds between two lines of the log")
    parser.add_argument("--muon-rate", type=float, default=0.015, help="learning rate of Muon")
    parser.add_argument("--adam-rate", type=float, default=1.5e-3, help="learning rate of AdamW")
    return parser.parse_args(arguments)


def mel_filters() -> Tensor:
    """The mel filterbank of the engine with 80 bands."""
    from engine.model.log_mel import mel_filters as filters

    return filters(80)


class Trainer:
    """One training run: a network, its optimisers, its record, and the planners of its batches."""

    planners: tuple[type[Planner], ...] = (Planner, Planner)
    """The planner of each planning process."""
    frozen: tuple[str, ...] = ()
    """Prefixes of the names of parameters that are not trained."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add the command-line arguments of this kind of training."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = torch.device(args.device)
        self.ids = Ids(args.tokenizer)
        self.tokenizer = Tokenizer.from_file(str(args.tokenizer))
        self.marks = mark_ids(self.tokenizer)
        sizes = Sizes(
            vocab_size=self.ids.vocab_size,
            n_classes=len(CTC_ALPHABET) + 1,
            d_model=args.d_model,
            encoder_layers=args.encoder_layers,
            decoder_layers=args.decoder_layers,
        )
        self.model = Whisper(sizes).to(self.device)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and not name.startswith(self.frozen))
        self.optimisers = Optimisers(
            ((name, p) for name, p in self.model.named_parameters() if p.requires_grad),
            muon_rate=args.muon_rate,
            adam_rate=args.adam_rate,
            is_cuda=self.is_cuda,
        )
        self.ema = [p.detach().clone() for p in self.model.parameters()]
        self.record = RunRecord(args.seconds)
        self._restore()
        self.record.start_clock()

    @property
    def is_cuda(self) -> bool:
        """Whether the training runs on an NVIDIA GPU."""
        return self.device.type == "cuda"

    # Saving and restoring

    def _restore(self) -> None:
        """Continue from the saved state or, without one, from exported weights."""
        file, record = self.args.state / "state.pt", self.record
        if file.exists():
            state = torch.load(file, map_location=self.device, weights_only=False)
            self.model.load_state_dict(state["model"])
            for average, saved in zip(self.ema, state["ema"], strict=True):
                average.copy_(saved)
            self.optimisers.restore(state, state["step"])
            record.restore(state)
            logger.info("continuing from the state at step %d, %.0f s", record.step, record.elapsed_before_s)
        elif self.args.weights is not None and self.args.history is not None and self.args.history.exists():
            self.load_weights(self.args.weights)
            record.restore(json.loads(self.args.history.read_text()))
            logger.info("continuing from weights at step %d, %.0f s", record.step, record.elapsed_before_s)

    def load_weights(self, file: Path) -> None:
        """Load exported weights into the network and into their moving average."""
        weights = load_file(file)
        missing, extra = self.model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        assert set(missing) <= {"ctc.weight", "ctc.bias", "proj_out.weight"}, missing
        assert set(extra) <= {"proj_out.weight"}, extra
        for average, parameter in zip(self.ema, self.model.parameters(), strict=True):
            average.copy_(parameter)

    def save_state(self) -> None:
        """Save everything that a later call needs to continue."""
        state = self.record.to_json() | {"model": self.model.state_dict(), "ema": self.ema} | self.optimisers.state()
        partial = self.args.state / "state.tmp"
        torch.save(state, partial)
        partial.rename(self.args.state / "state.pt")

    def save_weights(self, bank: Bank) -> None:
        """Write the averaged weights in float16 under the names of transformers, in parts, and `train.json`."""
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
        names = ("d_model", "encoder_layers", "decoder_layers", "vocab_size")
        sizes = {name: getattr(self.model.sizes, name) for name in names}
        facts = self.record.to_json() | {"sizes": sizes, "hours": hours, "sentences": bank.n_sentences}
        (out / "train.json").write_text(json.dumps(facts, indent=1))

    # Training

    def run(self) -> None:
        """Train until the schedule or `--most-steps` ends, and leave the final weights in `--out`."""
        args, record = self.args, self.record
        pool = PlannerPool(args, self.planners, self.ids, os.getpid() % 1000 * 100, self.marks, record.progress)
        bank = Bank(args.bank, args.hours, self.device, args.keep_hours, pool.add)
        while bank.hours < args.first_hours:
            bank.poll()
            time.sleep(0.2)
        logger.info("%.1f h of speech at the start", bank.hours)
        bank.start()
        frontend = self._make_frontend()
        loss_function = self._compile() if args.compile else decoder_loss
        self._warm_up(pool.next(record.progress), bank, frontend, loss_function)
        period = _Period(record.step)
        saved_at = time.monotonic()
        while record.progress < 1 and record.step < args.most_steps:
            requested_at = time.monotonic()
            plan = pool.next(record.progress)
            period.waited_s += time.monotonic() - requested_at
            figures = self._step(plan, bank, frontend, loss_function)
            period.n_windows += len(plan.inputs)
            now = time.monotonic()
            if now - period.started_at >= args.log_seconds or record.step <= 3:
                self.log(figures, plan, bank, period)
                period = _Period(record.step)
                self._read_seconds()
            if now - saved_at >= SAVE_EVERY_S:
                self.save_state()
                saved_at = now
            if (args.state / "snapshot").exists():
                self.snapshot(bank, frontend)
                period.started_at = saved_at = time.monotonic()
        bank.stopping = True
        pool.stop()
        self.save_state()
        self.snapshot(bank, frontend)
        (args.state / "finished").touch()
        logger.info("finished: %d steps, %.0f s", record.step, record.elapsed_s)

    def _make_frontend(self) -> Frontend:
        n_samples = int(30 * SAMPLE_RATE) + 2 * SAMPLE_RATE
        frontend = Frontend(self.device, mel_filters(), sounds.make_all(self.args.sounds, n_samples, self.device))
        logger.info("made %d sounds", self.args.sounds)
        return frontend

    def _compile(self) -> Any:
        """Compile the layers, and return the compiled loss function."""
        torch._dynamo.config.recompile_limit = 64
        torch._dynamo.config.suppress_errors = True  # a step that cannot be compiled is slower, but still runs
        for layer in [*self.model.model.encoder.layers, *self.model.model.decoder.layers]:
            layer.compile(dynamic=True)
        return torch.compile(decoder_loss, dynamic=True)

    def _warm_up(self, plan: BatchPlan, bank: Bank, frontend: Frontend, loss_function: Any) -> None:
        """Compile by a step without effect, before the clock starts."""
        started_at = time.monotonic()
        self.compute_gradients(plan, bank, frontend, loss_function)
        self.optimisers.drop_gradients()
        logger.info("the first step took %.0f s", time.monotonic() - started_at)
        self.record.start_clock()

    def _read_seconds(self) -> None:
        """Take the length of the schedule from the file `seconds` in the state's folder, if it is there."""
        file = self.args.state / "seconds"
        if file.exists():
            self.record.seconds = float(file.read_text())

    def to_device(self, array: Any) -> Tensor:
        """Copy a numpy array to the device without waiting."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.is_cuda else tensor

    @torch.no_grad()
    def make_mel(self, plan: BatchPlan, bank: Bank, frontend: Frontend) -> Tensor:
        """The augmented log-mel spectrograms of the planned windows: `(rows, n_mels, frames)`."""
        moved, progress = self.to_device, self.record.progress
        rows, total = len(plan.inputs), int(plan.places[:, 3].sum())
        audio = frontend.mix(bank, rows, int(plan.seconds * SAMPLE_RATE), total, moved(plan.places), moved(plan.speeds))
        audio = frontend.augment(audio, moved(plan.has_speech), moved(plan.ends), min(1.0, 0.3 + 4 * progress))
        return frontend.mask(frontend.log_mel(audio), 0.5 if progress < 0.75 else 0.25)

    def compute_gradients(
        self, plan: BatchPlan, bank: Bank, frontend: Frontend, loss_function: Any
    ) -> dict[str, Tensor]:
        """Leave the gradients of a batch in the parameters. Returns the figures for the log."""
        moved, progress = self.to_device, self.record.progress
        mel = self.make_mel(plan, bank, frontend)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_cuda):
            states = self.model.model.encoder(mel)
            hidden = self.model.model.decoder(moved(plan.inputs), states)
            embedding = self.model.model.decoder.embed_tokens.weight
            loss, shown = loss_function(hidden, embedding, moved(plan.targets), self.ids.first_timestamp)
            classes = self.model.ctc(states) if progress < CTC_UNTIL else None
        ctc = torch.zeros_like(loss)
        if classes is not None:
            ctc = character_loss(classes, moved(plan.classes), plan.class_counts)
        ctc_weight = 0.5 if progress < SHORT_PHASE else 0.25 * (1 - progress)
        torch.autograd.backward(loss + ctc_weight * ctc)
        return {"loss": loss.detach(), "shown": shown, "ctc": ctc.detach()}

    def _step(self, plan: BatchPlan, bank: Bank, frontend: Frontend, loss_function: Any) -> dict[str, Tensor]:
        record, progress = self.record, self.record.progress
        figures = self.compute_gradients(plan, bank, frontend, loss_function)
        norm = self.optimisers.step(progress)
        record.step += 1
        with torch.no_grad():
            weight = 1 - min(EMA, record.step / (record.step + 20))
            torch._foreach_lerp_(self.ema, tuple(self.model.parameters()), weight)
        record.seen_h += len(plan.inputs) * plan.seconds / 3600
        return figures | {"norm": norm}

    def log(self, figures: dict[str, Tensor], plan: BatchPlan, bank: Bank, period: "_Period") -> None:
        """Log the last step and the speed since the last log.

        Raises:
            FloatingPointError: the loss is not finite.
        """
        record, took_s = self.record, time.monotonic() - period.started_at
        nll, right, stamp_ms = figures["shown"].tolist()
        row = {
            "step": record.step,
            "s": round(record.elapsed_s, 1),
            "window_s": plan.seconds,
            "loss": round(float(figures["loss"]), 3),
            "nll": round(nll, 3),
            "ctc": round(float(figures["ctc"]), 3),
            "token_acc": round(right, 4),
            "stamp_ms": round(stamp_ms, 1),
            "norm": round(float(figures["norm"]), 2),
            "rate": round(self.optimisers.rate(record.progress), 3),
            "bank_h": round(bank.hours, 1),
            "seen_h": round(record.seen_h, 1),
            "step_ms": round(took_s / max(1, record.step - period.first_step) * 1e3, 1),
            "windows_per_s": round(period.n_windows / max(took_s, 1e-9), 1),
            "waited_s": round(period.waited_s, 2),
        }
        record.history.append(row)
        logger.info("%s", json.dumps(row))
        if not np.isfinite(row["loss"]):
            raise FloatingPointError(f"expected a finite loss, got {row['loss']} at step {record.step}")

    # Testing

    def snapshot(self, bank: Bank, frontend: Frontend) -> None:
        """Write the averaged weights, test them, and report both with `snapshot.done`."""
        started_at = time.monotonic()
        self.save_weights(bank)
        if self.args.tests is not None:
            try:
                self.record.tests.append({"step": self.record.step, **self._test(frontend)})
                self.save_weights(bank)
            except Exception:
                logger.exception("the test failed")
        (self.args.state / "snapshot").unlink(missing_ok=True)
        (self.args.state / "snapshot.done").touch()
        logger.info("snapshot at step %d took %.1f s", self.record.step, time.monotonic() - started_at)

    @torch.no_grad()
    def _test(self, frontend: Frontend) -> dict[str, Any]:
        network = Whisper(self.model.sizes).to(self.device)
        for parameter, average in zip(network.parameters(), self.ema, strict=True):
            parameter.copy_(average)
        return ClipTest(self.device, self.ids, self.tokenizer).run(network, frontend, self.args.tests)


class _Period:
    """What happened since the last log."""

    def __init__(self, first_step: int) -> None:
        self.first_step = first_step
        self.started_at = time.monotonic()
        self.waited_s = 0.0
        """Seconds that the training waited for planners."""
        self.n_windows = 0


def main(kind: type[Trainer] = Trainer) -> None:
    """Run a kind of training as its command line says."""
    args = parse_arguments(kind)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    args.state.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1 + os.getpid())
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    if args.device == "cuda":
        torch.backends.cuda.cufft_plan_cache.max_size = MAX_CUFFT_PLANS
    trainer = kind(args)
    n_parameters = sum(p.numel() for name, p in trainer.model.named_parameters() if not name.startswith("ctc."))
    logger.info("%.2f M parameters, torch %s", n_parameters / 1e6, torch.__version__)
    trainer.run()


if __name__ == "__main__":
    main()
