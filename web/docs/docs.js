// Behaviour of the documentation: theme, chapters on a phone, copying of code, search.
// A classic script, loaded before the page is shown: modules do not load from a file system.
(() => {
  'use strict';
  const page = document.documentElement;
  const { root, index } = document.currentScript.dataset;
  const kept = {
    get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* No storage: the choice lasts for this page. */ } },
  };
  page.classList.add('js');
  const theme = kept.get('windlass.theme');
  if (theme) page.dataset.theme = theme;

  // Element of the layout. Its id has a prefix that no heading of a text has.
  const by = (id) => document.getElementById(`site_${id}`);

  function turnTheme() {
    const dark = page.dataset.theme === 'dark' || (!page.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches);
    page.dataset.theme = dark ? 'light' : 'dark';
    kept.set('windlass.theme', page.dataset.theme);
  }

  function openChapters(open) {
    by('chapters').classList.toggle('open', open);
    by('menu').setAttribute('aria-expanded', String(open));
  }

  // Scrolls the list of chapters, not the page, to the current one.
  function showCurrentChapter() {
    const chapters = by('chapters');
    const here = chapters.querySelector('[aria-current]');
    if (here) chapters.scrollTop = here.offsetTop - chapters.offsetTop - chapters.clientHeight / 2;
  }

  // Marks the section that is read in the contents of the page.
  function followReading() {
    const links = [...document.querySelectorAll('#site_contents a')];
    if (!links.length) return;
    const wide = matchMedia('(min-width: 1181px)');
    const fold = () => { by('contents').open = wide.matches; };
    fold();
    wide.addEventListener('change', fold);
    by('contents').querySelector('summary').addEventListener('click', (event) => { if (wide.matches) event.preventDefault(); });
    const headings = links.map((link) => document.getElementById(decodeURIComponent(link.hash.slice(1))));
    let asked = false;
    const mark = () => {
      asked = false;
      const passed = headings.filter((heading) => heading && heading.getBoundingClientRect().top < 100).length;
      const here = links[Math.max(0, passed - 1)];
      for (const link of links) if (link !== here) link.removeAttribute('aria-current');
      if (here.hasAttribute('aria-current')) return;
      here.setAttribute('aria-current', 'true');
      const list = by('contents');
      if (wide.matches && list.scrollHeight > list.clientHeight) list.scrollTop = here.offsetTop - list.offsetTop - list.clientHeight / 2;
    };
    addEventListener('scroll', () => { if (!asked) { asked = true; requestAnimationFrame(mark); } }, { passive: true });
    mark();
  }

  // Adds a button that copies a block of code; of a console only the commands.
  function offerCopy(block) {
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = 'Copy';
    button.addEventListener('click', async () => {
      const commands = [...block.querySelectorAll('.cmd')].map((command) => command.textContent);
      const text = commands.length ? commands.join('\n') : block.querySelector('code').textContent;
      let word = 'Copied';
      try { await navigator.clipboard.writeText(text.trimEnd()); } catch { word = select(block.querySelector('code')); }
      button.textContent = word;
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
    block.append(button);
  }

  // The clipboard is only there on secure origins; elsewhere the text is selected.
  function select(code) {
    getSelection().selectAllChildren(code);
    return 'Selected';
  }

  let loading = null;
  function load() {
    loading ??= new Promise((resolve, reject) => {
      window.windlassSearch = resolve;
      const script = document.createElement('script');
      script.src = root + index;
      script.onerror = () => { loading = null; script.remove(); reject(new Error('the index could not be loaded')); };
      document.head.append(script);
    });
    return loading;
  }

  // Points for a word in a text: most at its beginning, more at the beginning of a word than inside of one.
  function points(text, word, [first, begins, inside]) {
    let at = text.indexOf(word);
    if (at <= 0) return at === 0 ? first : 0;
    for (; at > 0; at = text.indexOf(word, at + 1)) if (!/[\p{L}\p{N}]/u.test(text[at - 1])) return begins;
    return inside;
  }

  // Sections that contain every word; a match in a title counts more.
  function search(sections, words) {
    const found = [];
    for (const [title, section, address, text] of sections) {
      const [inTitle, inSection, inText] = [title, section, text].map((part) => part.toLowerCase());
      let score = 0;
      for (const word of words) {
        const here = points(inSection, word, [60, 40, 10]) + points(inTitle, word, section ? [8, 8, 2] : [70, 50, 10]) + points(inText, word, [5, 5, 1]);
        if (!here) { score = 0; break; }
        score += here;
      }
      if (score) found.push({ title, section, address, text, score });
    }
    return found.sort((a, b) => b.score - a.score).slice(0, 12);
  }

  // Text around the first match, with the words marked.
  function excerpt(text, words) {
    const lower = text.toLowerCase();
    const first = Math.max(0, Math.min(...words.map((word) => lower.indexOf(word)).filter((at) => at >= 0), text.length) - 50);
    const part = (first ? '…' : '') + text.slice(first, first + 160);
    const small = document.createElement('small');
    const pattern = new RegExp(`(${words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})`, 'i');
    for (const [at, piece] of part.split(pattern).entries()) {
      const mark = at % 2 ? document.createElement('mark') : document.createTextNode('');
      mark.textContent = piece;
      small.append(mark);
    }
    return small;
  }

  function result(hit, words, number) {
    const item = document.createElement('li');
    item.role = 'presentation';
    const link = document.createElement('a');
    link.href = root + hit.address;
    link.id = `site_hit_${number}`;
    link.role = 'option';
    link.tabIndex = -1;
    const name = document.createElement('b');
    name.textContent = hit.section || hit.title;
    link.append(name, hit.section ? ` · ${hit.title}` : '', excerpt(hit.text, words));
    link.addEventListener('click', () => show([]));
    item.append(link);
    return item;
  }

  function show(items) {
    by('found').replaceChildren(...items);
    by('found').hidden = !items.length;
    by('search').setAttribute('aria-expanded', String(items.length > 0));
    choose(0);
  }

  function choose(number) {
    const links = [...by('found').querySelectorAll('a')];
    const chosen = links[(number + links.length) % (links.length || 1)];
    for (const link of links) link.setAttribute('aria-selected', String(link === chosen));
    chosen?.scrollIntoView({ block: 'nearest' });
    by('search').setAttribute('aria-activedescendant', chosen?.id ?? '');
  }

  async function typed() {
    const asked = by('search').value;
    const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return show([]);
    let hits;
    try { hits = search(await load(), words); } catch (error) { return show([note(error.message)]); }
    // More was typed while the index was on its way.
    if (by('search').value !== asked) return undefined;
    return show(hits.length ? hits.map((hit, number) => result(hit, words, number)) : [note('Nothing found')]);
  }

  function note(text) {
    const item = document.createElement('li');
    item.className = 'none';
    item.textContent = text;
    return item;
  }

  function pressedInSearch(event) {
    const links = [...by('found').querySelectorAll('a')];
    const at = links.findIndex((link) => link.getAttribute('aria-selected') === 'true');
    const keys = {
      ArrowDown: () => choose(at + 1),
      ArrowUp: () => choose(at - 1),
      Enter: () => links[at]?.click(),
      Escape: () => { show([]); by('search').blur(); },
    };
    if (!keys[event.key]) return;
    keys[event.key]();
    event.preventDefault();
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.('input, textarea')) return;
    if (event.key === '/') { by('search').focus(); event.preventDefault(); }
    if (event.key === 'Escape') openChapters(false);
  }

  document.addEventListener('DOMContentLoaded', () => {
    by('theme').addEventListener('click', turnTheme);
    by('menu').addEventListener('click', () => openChapters(!by('chapters').classList.contains('open')));
    by('search').addEventListener('input', typed);
    by('search').addEventListener('focus', () => { load().catch(() => {}); typed(); });
    by('search').addEventListener('keydown', pressedInSearch);
    document.addEventListener('keydown', pressed);
    document.addEventListener('click', (event) => { if (!by('find').contains(event.target)) show([]); });
    document.querySelectorAll('.code').forEach(offerCopy);
    showCurrentChapter();
    followReading();
  });
})();
