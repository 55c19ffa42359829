const CHECK_MS = 20;
export class Writers {
    #isWritable;
    #waiting = [];
    #timer;
    constructor(isWritable) {
        this.#isWritable = isWritable;
    }
    wait() {
        if (this.#isWritable()) {
            return Promise.resolve();
        }
        return new Promise((resolve, reject) => {
            this.#waiting.push({ resolve, reject });
            this.#timer ??= setInterval(() => this.#isWritable() && this.#release((writer) => writer.resolve()), CHECK_MS);
        });
    }
    end(error) {
        this.#release((writer) => writer.reject(error));
    }
    #release(wake) {
        clearInterval(this.#timer);
        this.#timer = undefined;
        this.#waiting.splice(0).forEach(wake);
    }
}
