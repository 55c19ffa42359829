"""What decoding holds for every slot, on the device: the last token and its position, rules, hotwords and draws."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tutti_server.engine.checkpoint.checkpoint import Checkpoint
from tutti_server.engine.decoding.beam_search import BeamSearch
from tutti_server.engine.decoding.hotwords import Hotwords
from tutti_server.engine.decoding.logit_rules import RuleState, make_rules
from tutti_server.engine.decoding.prompt import Prompt
from tutti_server.engine.decoding.sampling import Draw, Sampler
from tutti_server.engine.model.host_transfer import to_device
from tutti_server.engine.model.kv_cache import Rows
from tutti_server.engine.model.log_mel import STATE_SAMPLES


class SlotStates:
    """The state of all slots. A row is a slot; there may be more rows than slots, and nothing reads those."""

    def __init__(self, checkpoint: Checkpoint, n_rows: int, device: torch.device) -> None:
        self.rules = make_rules(checkpoint, device)
        self.sampler = Sampler(device)
        self.hotwords = Hotwords(n_rows, device)
        self.tokens = torch.zeros(n_rows, dtype=torch.long, device=device)
        """The last token of every slot."""
        self.positions = torch.zeros(n_rows, dtype=torch.long, device=device)
        """The position of the last token of every slot."""
        self.eot = checkpoint.tokenizer.eot
        self.first_timestamp = checkpoint.tokenizer.first_timestamp
        self.rule_state = RuleState.begin([()] * n_rows, [False] * n_rows, self.first_timestamp, device)
        self._last_position = checkpoint.model.max_target_positions - 1
        self.running: dict[int, int] = {}
        """The position of the last token of each running slot, by slot: the host's copy of `positions`."""
        self.searches: dict[int, BeamSearch] = {}
        """The searches, each by the slot of its window."""
        self._beam_rows: Tensor | None = None
        """The slots of all beams, on the device, in the order of the searches; `None` where there are none."""
        self._attention_states: dict[int, int] = {}
        """The number of encoder states that hold audio, by slot, of the slots that want attention peaks."""

    @property
    def are_plain(self) -> bool:
        """Whether no slot has hotwords or a temperature above 0: the rules alone decide."""
        return not (self.hotwords.are_any or self.sampler.draws_any)

    def want_attention(self, slots: Sequence[int] | dict[int, int]) -> bool:
        """Return whether any of these slots wants attention peaks."""
        return not self._attention_states.keys().isdisjoint(slots)

    def begin(self, slot: int, prompt: Prompt, draw: Draw) -> None:
        """Prepare a slot for the prefill of a prompt. A slot that is running begins anew."""
        self._end_search(slot)
        for each in (slot,) if draw.search is None else draw.search.slots:
            self.hotwords.begin(each, prompt.hotwords, prompt.prefix)
            self.sampler.begin(each, draw)
            self._attention_states.pop(each, None)
            if draw.n_attention_samples:
                self._attention_states[each] = max(1, draw.n_attention_samples // STATE_SAMPLES)
        if draw.search is not None:
            self.searches[slot] = draw.search
            self._find_beam_rows()

    @property
    def beam_rows(self) -> Tensor:
        """The slots of all beams, on the device, in the order of the searches. There must be some."""
        assert self._beam_rows is not None
        return self._beam_rows

    @property
    def sequences(self) -> tuple[int, ...]:
        """The running slots that hold a window: of the beams of a search, the first."""
        others = {slot for search in self.searches.values() for slot in search.slots[1:]}
        return tuple(slot for slot in self.running if slot not in others)

    def move_beams(self, slots: Sequence[int], parents: Sequence[int], tokens: Sequence[int]) -> None:
        """Let beams go on with tokens that were chosen after a step, each from the state of its parent.

        Args:
            parents: the slot of each beam's parent, at the time of the step.
            tokens: the token that each beam adds; it becomes the beam's next input.
        """
        rows, sources, last = to_device([list(slots), list(parents), list(tokens)], self.tokens.device)
        self.tokens[rows] = last
        self.rule_state.store(rows, self.rule_state.select(sources).after(last, self.first_timestamp))
        self.move_hotwords(rows, sources, last)

    def move_hotwords(self, rows: Tensor, sources: Tensor, tokens: Tensor) -> None:
        """Let the hotwords of slots go on with tokens, `(rows,)`, each from what its source has written."""
        if self.hotwords.are_any:
            self.hotwords.n_written[rows] = self.hotwords.n_written[sources]
            self.hotwords.after(rows, tokens)

    def set_running(
        self,
        slots: Sequence[int],
        prompts: Sequence[Prompt],
        new_tokens: Sequence[tuple[int, ...]],
    ) -> None:
        """Let slots run from the tokens that were sampled after their prompts, at least one for each."""
        positions = [len(prompt.tokens) + len(new) - 1 for prompt, new in zip(prompts, new_tokens, strict=True)]
        written = [prompt.prefix + new for prompt, new in zip(prompts, new_tokens, strict=True)]
        last_tokens = [new[-1] for new in new_tokens]
        rows, last, on_device = to_device([list(slots), last_tokens, positions], self.tokens.device)
        self.tokens[rows] = last
        self.positions[rows] = on_device
        self.rule_state.store(rows, self.rules_after(prompts, written))
        self.hotwords.after(rows, last)
        self.running.update(zip(slots, positions, strict=True))

    def expect_running(self, slots: Sequence[int], prompts: Sequence[Prompt]) -> None:
        """Count slots as running that the device sets running. Their positions are upper bounds until `correct`."""
        self.running.update(
            (slot, len(prompt.tokens) + len(prompt.draft)) for slot, prompt in zip(slots, prompts, strict=True)
        )

    def correct(self, slot: int, n_refused: int) -> None:
        """Take back the draft tokens of a slot that were not accepted."""
        self.running[slot] -= n_refused

    def advance(self) -> None:
        """Move the host's positions of all running slots on by one token, up to the last position."""
        self.running = {slot: min(position + 1, self._last_position) for slot, position in self.running.items()}

    def end(self, slot: int) -> None:
        """Forget what belongs to a slot, and to the beams of its search."""
        self._end_search(slot)
        self._end(slot)

    def _end_search(self, slot: int) -> None:
        search = self.searches.pop(slot, None)
        if search is not None:
            for each in search.slots:
                self._end(each)
            self._find_beam_rows()

    def _find_beam_rows(self) -> None:
        slots = [slot for search in self.searches.values() for slot in search.slots]
        self._beam_rows = to_device(slots, self.tokens.device) if slots else None

    def _end(self, slot: int) -> None:
        self.running.pop(slot, None)
        self._attention_states.pop(slot, None)
        self.hotwords.end(slot)
        self.sampler.end(slot)

    def rules_after(self, prompts: Sequence[Prompt], written: Sequence[tuple[int, ...]]) -> RuleState:
        """Return what the rules know of rows, from their prompts and the tokens that count as sampled before each."""
        with_timestamps = [prompt.with_timestamps for prompt in prompts]
        return RuleState.begin(written, with_timestamps, self.first_timestamp, self.tokens.device)

    def sample_apart(self, rows: Rows, slots: Sequence[int], state: RuleState, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Sample one token for each row of logits. The state of the slots stays as it is.

        Args:
            rows: `slots` as an index.
            slots: the slot of each row of logits; a slot may have several.
            state: what the rules know of each row.
            logits: `(rows, vocab_size)`.

        Returns:
            Tokens and log-probabilities, `(rows,)` each.
        """
        self.hotwords.apply(rows, logits)
        for rule in self.rules:
            rule.apply(logits, state)
        return self.sampler.sample(slots, logits)

    def sample_step(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Sample one token for each of the first rows; the tokens become the rows' next input.

        Args:
            logits: `(rows, vocab_size)`.

        Returns:
            Tokens and log-probabilities, `(rows,)` each.
        """
        n_rows = logits.shape[0]
        rows = slice(0, n_rows)
        state = self.rule_state.select(rows)
        tokens, logprobs = self.sample_apart(rows, range(n_rows), state, logits)
        self.tokens[rows] = tokens
        beams = self._beam_rows
        before = None if beams is None else (state.select(beams), self.hotwords.n_written[beams])
        self.hotwords.after(rows, tokens)
        self.rule_state.store(rows, state.after(tokens, self.first_timestamp))
        if beams is not None and before is not None:
            # Beams stay as they are until it is known which of them go on, and how.
            self.rule_state.store(beams, before[0])
            self.hotwords.n_written[beams] = before[1]
        # A row that no window uses advances with the others, up to the last position.
        self.positions[rows].add_(1).clamp_(max=self._last_position)
        return tokens, logprobs

    def attention_peaks(self, weights: Tensor, slots: Sequence[int]) -> Tensor:
        """Return for each token the encoder state after the one with the most attention; -1 if its slot wants none.

        Args:
            weights: `(tokens, heads, states)`.

        Returns:
            `(tokens,)`.

        Source of the idea: Papi, Turchi, Negri, "AlignAtt: Using Attention-based Audio-Translation Alignments as a
        Guide for Simultaneous Speech Translation", 2023.
        """
        device = weights.device
        n_states = to_device([self._attention_states.get(slot, 0) for slot in slots], device)
        holds_audio = torch.arange(weights.shape[2], device=device) < n_states[:, None]
        peaks = weights.mean(dim=1).masked_fill(~holds_audio, -1.0).argmax(dim=-1)
        return torch.where(n_states > 0, peaks + 1, -1)
