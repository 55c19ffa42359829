"""Trains the speaker network within a given time, and writes its folded weights and the record of the run."""

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.model.frontend import Frontend
from training.speakers import verification
from training.speakers.bank import SpeakerBank
from training.speakers.network import AngularMargin, LogMel, Shape, SpeakerNetwork, folded
from training.speech import voices
from training.speech.sounds import make_all

logger = logging.getLogger(__name__)

LENGTHS_S = (1.2, 1.6, 2.0, 3.0)
"""Lengths of the clips of a batch, in seconds."""
WARM_UP = 0.04
MARGIN = 0.2
"""The angular margin, from a third of the schedule on; it rises up to there."""
EMA = 0.998
TEST_EVERY_S = 45.0


class Trainer:
    """One run of the training."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.args, self.device = args, device
        torch.manual_seed(args.seed)
        self.shape = Shape(channels=args.channels)
        self.network = SpeakerNetwork(self.shape).to(device)
        self.average = SpeakerNetwork(self.shape).to(device).requires_grad_(False)
        self.average.load_state_dict(self.network.state_dict())
        self.loss = AngularMargin(self.shape.embedding, args.speakers).to(device)
        self.log_mel = LogMel().to(device)
        sounds = make_all(args.sounds, int(3.5 * 16_000), device)
        self.frontend = Frontend(device, torch.zeros(1, 201), sounds)
        parameters = [*self.network.parameters(), *self.loss.parameters()]
        self.optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.02)
        self.record: dict[str, Any] = {"shape": asdict(self.shape), "history": [], "tests": []}
        self.step = 0

    def train_step(self, bank: SpeakerBank, progress: float) -> tuple[float, float] | None:
        """One step at this share of the schedule. The loss and the accuracy in every 50th step."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.args.rate * min(1.0, progress / WARM_UP) * min(1.0, max(0.0, (1 - progress) / 0.7))
        n_samples = int(LENGTHS_S[self.step % len(LENGTHS_S)] * 16_000)
        x, speakers = bank.batch(self.args.batch, 2, n_samples)
        mel = self._input(x)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            embeddings = self.network(mel)
        loss, accuracy = self.loss(embeddings, speakers, MARGIN * min(1.0, progress * 3))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
        self.optimiser.step()
        decay = min(EMA, 1 - 1 / (self.step + 2))
        with torch.no_grad():
            for mean, value in zip(self.average.state_dict().values(), self.network.state_dict().values(), strict=True):
                mean.lerp_(value, 1 - decay) if mean.is_floating_point() else mean.copy_(value)
        self.step += 1
        return (loss.item(), accuracy.item()) if self.step % 50 == 0 else None

    @torch.no_grad()
    def _input(self, x: Tensor) -> Tensor:
        """The log-mel spectrograms of augmented clips, with some bands and stretches of time hidden."""
        rows, n_samples = x.shape
        has_speech = torch.ones(rows, dtype=torch.bool, device=self.device)
        ends = torch.full((rows,), n_samples, device=self.device)
        x = self.frontend.augment(x, has_speech, ends)
        return self.frontend.mask(self.log_mel(x), 0.3)

    @torch.no_grad()
    def test(self, bank: SpeakerBank) -> None:
        """Log the equal error rates of held-out voices, clean and augmented."""
        self.average.eval()

        def embed(x: Tensor) -> Tensor:
            return torch.cat([self.average(self.log_mel(part.to(self.device))) for part in torch.split(x, 256)])

        found: dict[str, Any] = {"step": self.step}
        for seconds in (1.5, 3.0):
            x, ids = verification.clips(dict(bank.held_out), seconds)
            found[f"clean {seconds} s"] = verification.equal_error(embed, x, ids)
            n = torch.full((len(x),), x.shape[1], device=self.device)
            noisy = self.frontend.augment(
                x.to(self.device), torch.ones(len(x), dtype=torch.bool, device=self.device), n
            )
            found[f"augmented {seconds} s"] = verification.equal_error(embed, noisy, ids)
        self.record["tests"].append(found)
        logger.info("test %s", json.dumps(found))

    def save(self, out: Path, bank: SpeakerBank) -> None:
        """Write `speakers.npz`, `train.json` and a reference: audio and the embeddings that torch computes for it."""
        self.average.eval()
        np.savez(out / "speakers.npz", allow_pickle=False, **folded(self.average))
        x, _ = verification.clips(dict(bank.held_out), 2.0)
        x = x[:: max(1, len(x) // 8)][:8]
        with torch.no_grad():
            vectors = self.average(self.log_mel(x.to(self.device))).float().cpu().numpy()
        np.savez(out / "reference.npz", audio=(x.numpy() * 32768).astype(np.int16), embeddings=vectors)
        torch.save(self.average.state_dict(), out / "speakers.pt")
        self.record |= {"steps": self.step, "hours": round(bank.hours, 1), "speakers": bank.n_speakers}
        (out / "train.json").write_text(json.dumps(self.record, indent=1))


def run(args: argparse.Namespace) -> None:
    """Make speech and train until `args.seconds` are over."""
    began = time.monotonic()
    device = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    args.out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(args, device)
    bank = SpeakerBank(args.bank, device, args.hours)
    while (bank.n_speakers < 0.9 * args.speakers and time.monotonic() - began < args.wait) or not bank.held_out:
        if time.monotonic() - began > args.wait + 60:
            raise SystemExit(f"expected speech in {args.bank}, got that of {bank.n_speakers} speakers")
        time.sleep(0.2)
    logger.info("%.1f h of %d speakers after %.0f s", bank.hours, bank.n_speakers, time.monotonic() - began)
    started = time.monotonic()
    budget, next_test = args.seconds - (started - began) - args.reserve, TEST_EVERY_S
    while (elapsed := time.monotonic() - started) < budget:
        logged = trainer.train_step(bank, elapsed / budget)
        if logged and trainer.step % args.log == 0:
            row = {"step": trainer.step, "s": round(elapsed), "loss": round(logged[0], 3)}
            row |= {"accuracy": round(logged[1], 3), "hours": round(bank.hours, 1), "speakers": bank.n_speakers}
            trainer.record["history"].append(row)
            logger.info("%s", json.dumps(row))
        if elapsed > next_test:
            next_test += TEST_EVERY_S
            trainer.test(bank)
            trainer.save(args.out, bank)
    trainer.test(bank)
    trainer.save(args.out, bank)
    bank.close()


def main() -> None:
    """Read the options, start the production of speech, and train."""
    parser = argparse.ArgumentParser(prog="python -m training.speakers.train", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder made by synthesisers.sh")
    parser.add_argument("--bank", type=Path, required=True, help="folder for the speech; best in memory")
    parser.add_argument("--out", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--seconds", type=float, default=420, help="length of the whole run")
    parser.add_argument("--wait", type=float, default=75, help="longest wait for speech, in seconds")
    parser.add_argument("--reserve", type=float, default=12, help="seconds kept for the last test and for writing")
    parser.add_argument("--workers", type=int, default=14, help="processes that make speech")
    parser.add_argument("--speakers", type=int, default=4000, help="virtual speakers")
    parser.add_argument("--held-out", type=int, default=60, help="virtual speakers of voices never trained on")
    parser.add_argument("--sentences", type=int, default=10, help="sentences of a speaker in a round")
    parser.add_argument("--hours", type=float, default=250, help="most speech in memory, 115 MB an hour")
    parser.add_argument("--batch", type=int, default=256, help="speakers in a batch, two clips each")
    parser.add_argument("--channels", type=int, default=256, help="width of the network")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--sounds", type=int, default=256, help="sounds that are not speech, to lie under it")
    parser.add_argument("--log", type=int, default=200, help="steps between two rows of the log; a multiple of 50")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    names = ("root", "speakers", "held_out", "sentences", "workers", "seconds", "seed")
    options = [part for name in names for part in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    command = [sys.executable, "-m", "training.speakers.production", *options, "--out", str(args.bank)]
    # Only this process gets the synthesisers' libraries, some of which torch has as well.
    libraries = {"LD_LIBRARY_PATH": str((args.root / voices.LIBRARIES).resolve()), "OMP_NUM_THREADS": "1"}
    production = subprocess.Popen(command, env=os.environ | libraries)
    try:
        run(args)
    finally:
        production.terminate()
        production.wait()


if __name__ == "__main__":
    main()
