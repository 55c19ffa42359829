export class EagerEnds {
    #delivered = new Map();
    note(turn) {
        if (turn.event === "eager_end") {
            this.#delivered.set(turn.utterance, turn);
        }
        else if (turn.event === "resumed") {
            this.#delivered.delete(turn.utterance);
        }
    }
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
