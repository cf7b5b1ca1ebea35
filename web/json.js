// Text that a person typed as a payload. Text that begins like JSON and is not JSON is a mistake, unless it is declared as text.

const TOKEN = /[ \t\n\r]+|[{}[\],:]|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])|(?:true|false|null)(?!\w)/y;
const beginsLikeJson = (text) => /^\s*[{["]/.test(text);

// Position of the first fault, or -1. A stack of open brackets and what may come next: no recursion, so no depth is too deep.
function faultAt(text) {
  const open = [];
  let expects = 'value';
  let at = 0;
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const token = TOKEN.exec(text)?.[0];
    if (!token) return at;
    const first = token[0];
    if (!' \t\n\r'.includes(first)) {
      const inside = open.at(-1);
      if (first === '}' || first === ']') {
        const closes = first === '}' ? '{' : '[';
        if (inside !== closes || !['next', first === '}' ? 'first key' : 'first value'].includes(expects)) return at;
        open.pop();
        expects = 'next';
      } else if (first === ',') {
        if (expects !== 'next' || !inside) return at;
        expects = inside === '{' ? 'key' : 'value';
      } else if (first === ':') {
        if (expects !== 'colon') return at;
        expects = 'value';
      } else if (expects.endsWith('key')) {
        if (first !== '"') return at;
        expects = 'colon';
      } else {
        if (!expects.endsWith('value')) return at;
        if (first === '{' || first === '[') open.push(first);
        expects = first === '{' ? 'first key' : first === '[' ? 'first value' : 'next';
      }
    }
    at += token.length;
  }
  return expects === 'next' && open.length === 0 ? -1 : text.length;
}

export class NotJson extends Error {
  constructor(text, at) {
    const before = text.slice(0, at).split('\n');
    const where = `line ${before.length}, column ${before.at(-1).length + 1}`;
    const rest = text.slice(at).trimStart();
    super(`the payload begins like JSON and is not: ${rest ? `unexpected ${JSON.stringify(rest.slice(0, 12))}` : 'it ends too early'} at ${where}. Correct it, or switch on “Send as text”.`);
    this.at = at;
  }
}

// The fields `payload` and `format` of a push or a change.
export function payloadOf(text, asText) {
  if (asText) return { payload: text, format: 'text' };
  if (!text.trim()) return {};
  try {
    return { payload: read(text) };
  } catch {
    if (beginsLikeJson(text)) throw new NotJson(text, Math.max(0, faultAt(text)));
    return { payload: text, format: 'text' };
  }
}

// Numbers that a double cannot hold stay as they are written.
function read(text) {
  if (!JSON.rawJSON || !/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => (typeof value === 'number' && !Number.isSafeInteger(value) && context?.source ? JSON.rawJSON(context.source) : value));
}
