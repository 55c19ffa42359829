/** Takes back what was said too early about the ends of turns. This module does no I/O. */
/** For each utterance, the eager end that was delivered and not taken back. */
export class EagerEnds {
    #delivered = new Map();
    /** Notes a turn that is delivered. */
    note(turn) {
        if (turn.event === "eager_end") {
            this.#delivered.set(turn.utterance, turn);
        }
        else if (turn.event === "resumed") {
            this.#delivered.delete(turn.utterance);
        }
    }
    /** What follows an eager end whose text is not that of the utterance, which is `text`, or is not known. */
    takeBack(utterance, text) {
        const turn = this.#delivered.get(utterance.number);
        this.#delivered.delete(utterance.number);
        if (turn === undefined || turn.text === text) {
            return [];
        }
        const atS = Math.max(turn.at_s, utterance.shownUntilS);
        return [{ ...turn, event: "resumed", at_s: atS, confidence: null, text: null }];
    }
}
