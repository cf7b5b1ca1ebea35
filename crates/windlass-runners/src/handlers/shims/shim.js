// Node's side of a context: waits for orders, runs the handler's code, says how it ended.
//
// Descriptor 0 is a socket to the server; what is said on it is described in frames.rs. Node has no way to move a descriptor
// out of the handler's sight, so process.stdin is replaced by an empty stream; code that reads or closes descriptor 0 all the same
// ends its own context. What is printed goes to the server with the job that printed it.
//
// before is run as a script is, so what it defines is there for all parts. beforeEach, the body and afterEach are made async
// functions: they can return and await. Replies are written at once and with blocking calls: when the process ends in whatever way,
// everything that was finished has been told.
'use strict';
(() => {
    const fs = require('fs');
    const vm = require('vm');
    const { createRequire } = require('module');
    const { Readable, Writable } = require('stream');
    const { inspect } = require('util');
    // Taken now: a handler may change them.
    const { writeSync, read } = fs;
    const { concat, from, alloc, isBuffer } = Buffer;
    const exitNow = process.exit.bind(process);
    const AsyncFunction = (async () => {}).constructor;
    const now = performance.now.bind(performance);

    const LINE = 0;
    const PIECE_BYTES = 64 * 1024;
    const RESULT_BYTES_MAX = Number(process.env.WINDLASS_RESULT_MAX);
    // Jobs that were sent together are begun for this long; the rest go back to the server, which may have others to run.
    const PART_MS = 20;

    function write(bytes) {
        for (let at = 0; at < bytes.length; ) {
            try {
                at += writeSync(LINE, bytes, at);
            } catch (error) {
                if (error.code !== 'EAGAIN') exitNow(1);
            }
        }
    }

    function say(header, body) {
        if (!body || body.length === 0) return write(from(`${header} 0\n`));
        const bytes = isBuffer(body) ? body : from(body);
        write(concat([from(`${header} ${bytes.length}\n`), bytes]));
    }

    // Where console.log and process.stdout.write lead to. Sent in pieces, and the rest when a part ends.
    class Printed extends Writable {
        constructor(stream) {
            super({ decodeStrings: true });
            this.fd = stream;
            this.waiting = [];
            this.bytes = 0;
        }
        write(chunk, encoding, callback) {
            if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
            const bytes = typeof chunk === 'string' ? from(chunk, encoding) : from(chunk);
            this.waiting.push(bytes);
            this.bytes += bytes.length;
            if (this.bytes >= PIECE_BYTES) this.tell();
            if (typeof callback === 'function') process.nextTick(callback);
            return true;
        }
        end(chunk, encoding, callback) {
            if (chunk !== undefined && typeof chunk !== 'function') this.write(chunk, encoding);
            if (typeof callback === 'function') process.nextTick(callback);
            return this;
        }
        tell() {
            if (this.bytes === 0) return;
            const all = this.waiting.length === 1 ? this.waiting[0] : concat(this.waiting);
            this.waiting = [];
            this.bytes = 0;
            for (let at = 0; at < all.length; at += PIECE_BYTES) {
                say(`+ ${this.fd}`, all.subarray(at, at + PIECE_BYTES));
            }
        }
    }

    const stdout = new Printed(1);
    const stderr = new Printed(2);
    const stdin = new Readable({ read() { this.push(null); } });
    for (const [name, value] of Object.entries({ stdout, stderr, stdin })) {
        Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => value });
    }

    // What a body gave back: nothing, a status, a result, or [status, result].
    function statusOf(value) {
        let data;
        if (value === undefined || value === null) return ['200'];
        if (Array.isArray(value) && value.length === 2 && Number.isInteger(value[0])) [value, data] = value;
        else if (!Number.isInteger(value)) return ['200', asBytes(value)];
        if (value < 100 || value > 599) return ['?', `${value} is no status from 100 to 599`];
        return [String(value), data === undefined || data === null ? undefined : asBytes(data)];
    }

    function asBytes(data) {
        if (typeof data === 'string') return from(data);
        if (ArrayBuffer.isView(data)) return from(data.buffer, data.byteOffset, data.byteLength);
        const text = JSON.stringify(data);
        return from(text === undefined ? String(data) : text);
    }

    // process.exit() ends the part it is called in, with the exit code for its status, and not the context.
    class Exit extends Error {}
    let exitCode = null;
    process.exit = (code) => {
        exitCode = Number(code ?? process.exitCode ?? 0) & 0xff;
        throw new Exit(`process.exit(${exitCode})`);
    };

    // An error that nobody catches belongs to the part that runs; if none does, to nobody who could be told.
    let fail = null;
    const uncaught = (error) => {
        if (fail) fail(error);
        else stderr.write(`${inspect(error)}\n`);
    };
    process.on('uncaughtException', uncaught);
    process.on('unhandledRejection', uncaught);

    function tell(what, status, data) {
        stdout.tell();
        stderr.tell();
        process.exitCode = undefined;
        if (data && data.length > RESULT_BYTES_MAX) [status, data] = ['>', undefined];
        say(`= ${what} ${status}`, data);
    }

    // Tells how a part ended; whether it went well.
    function tellValue(what, value) {
        if (exitCode !== null) return tellExit(what);
        let status, data;
        try {
            [status, data] = statusOf(value);
        } catch (error) {
            return tellError(what, error);
        }
        tell(what, status, data);
        return status[0] === '2';
    }

    function tellExit(what) {
        const code = exitCode;
        exitCode = null;
        tell(what, `x${code}`);
        return code === 0;
    }

    function tellError(what, error) {
        if (exitCode !== null) return tellExit(what);
        let message;
        try {
            stderr.write(`${inspect(error)}\n`);
            message = String(error).slice(0, 1000);
        } catch {
            message = 'an error that cannot be shown';
        }
        tell(what, '!', message);
        return false;
    }

    // Waits only for what has to be waited for: most bodies are done when they return.
    function attempt(what, work, ...parameters) {
        let value;
        try {
            value = work(...parameters);
        } catch (error) {
            return tellError(what, error);
        }
        if (value === null || typeof value !== 'object' || typeof value.then !== 'function') {
            return tellValue(what, value);
        }
        return settle(what, value);
    }

    async function settle(what, promise) {
        const failure = new Promise((_, reject) => { fail = reject; });
        try {
            return tellValue(what, await Promise.race([promise, failure]));
        } catch (error) {
            return tellError(what, error);
        } finally {
            fail = null;
        }
    }

    // A body without await is made a plain function, which is quicker; one with it is not valid as such.
    function compile(name, source, ...parameters) {
        const text = `${source}\n//# sourceURL=${name}`;
        try {
            return new Function(...parameters, text);
        } catch (error) {
            if (!(error instanceof SyntaxError)) throw error;
            return new AsyncFunction(...parameters, text);
        }
    }

    globalThis.require = createRequire(`${process.cwd()}/handler.js`);

    class Handler {
        constructor(parts) {
            this.parts = parts;
        }
        begin() {
            const { before, beforeEach, afterEach, body } = this.parts;
            const value = before === null ? undefined : vm.runInThisContext(before, { filename: 'before' });
            this.beforeEach = beforeEach === null ? null : compile('beforeEach', beforeEach);
            this.afterEach = afterEach === null ? null : compile('afterEach', afterEach);
            this.body = compile('body', body, 'payload', 'job');
            this.whole = compile('body', body, 'payloads', 'jobs');
            // The value of a script is its last one. A promise is waited for, anything else means nothing.
            if (value !== null && typeof value === 'object' && typeof value.then === 'function') {
                return value.then(() => undefined);
            }
            return undefined;
        }
    }

    // What has arrived and is not used up, and how many bytes more the next frame needs at least.
    let buffer = alloc(0);
    let missing = 1;
    const piece = alloc(PIECE_BYTES);

    function more() {
        return new Promise((resolve) => {
            const arrived = [buffer];
            const readOn = () => read(LINE, piece, 0, PIECE_BYTES, null, (error, count) => {
                // The server is gone.
                if (error || count === 0) exitNow(0);
                arrived.push(from(piece.subarray(0, count)));
                missing -= count;
                if (missing > 0) return readOn();
                buffer = concat(arrived);
                resolve();
            });
            readOn();
        });
    }

    // The words of a frame and at their end its bytes, or null if it is not here as a whole.
    function takeFrame() {
        missing = 1;
        const end = buffer.indexOf(10);
        if (end < 0) return null;
        const words = buffer.latin1Slice(0, end).split(' ');
        const next = end + 1 + Number(words[words.length - 1]);
        missing = next - buffer.length;
        if (missing > 0) return null;
        words.push(buffer.subarray(end + 1, next));
        buffer = buffer.subarray(next);
        return words;
    }

    async function readFrame() {
        for (;;) {
            const words = takeFrame();
            if (words) return words;
            await more();
        }
    }

    function jobOf(words, jobtype) {
        const bytes = words[4];
        const job = { id: words[1], attempt: Number(words[2]), jobtype };
        // For payloads that are not text; made when asked for.
        Object.defineProperty(job, 'bytes', { get: () => from(bytes) });
        return [bytes.toString(), job];
    }

    // At least one job is run; what is not begun in time is thrown away here and sent again by the server.
    async function runPart(handler, count) {
        const began = now();
        for (let number = 0; number < count; number++) {
            if (number > 0 && now() - began > PART_MS) {
                for (; number < count; number++) takeFrame() ?? (await readFrame());
                return say('= c 200');
            }
            const words = takeFrame() ?? (await readFrame());
            const [payload, job] = jobOf(words, handler.parts.jobtype);
            const done = attempt(number, handler.body, payload, job);
            if (typeof done !== 'boolean') await done;
        }
    }

    async function runBatch(handler, count, mode) {
        const jobtype = handler.parts.jobtype;
        if (handler.beforeEach && !(await attempt('e', handler.beforeEach))) {
            // The server ends this context; nothing may be run in it.
            for (;;) await more();
        }
        if (mode === 'all') {
            const payloads = [], jobs = [];
            while (jobs.length < count) {
                const [payload, job] = jobOf(await readFrame(), jobtype);
                payloads.push(payload);
                jobs.push(job);
            }
            await attempt('B', handler.whole, payloads, jobs);
        } else {
            await runPart(handler, count);
        }
    }

    async function main() {
        const handlers = new Map();
        let current = null;
        say('# ready');
        for (;;) {
            const words = await readFrame();
            if (words[0] === 'H') {
                const handler = new Handler(JSON.parse(words[3].toString()));
                handlers.set(words[1], handler);
                await attempt('b', () => handler.begin());
            } else if (words[0] === 'B') {
                current = handlers.get(words[1]);
                await runBatch(current, Number(words[2]), words[3]);
            } else if (words[0] === 'M') {
                await runPart(current, Number(words[1]));
            } else if (words[0] === 'E') {
                await attempt('a', current.afterEach);
            }
        }
    }

    main();
})();
