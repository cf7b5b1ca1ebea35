//! Markdown to HTML: headings with anchors, links of the site, code with colours. Nothing inline that the
//! Content-Security-Policy refuses.

use super::links::{self, Target};
use super::pages::Page;
use super::{highlight, summary};
use pulldown_cmark::{
    Alignment, CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html,
};
use std::collections::HashMap;

/// Text of a page.
pub(super) struct Article {
    /// Text of its first heading.
    pub title: String,
    pub html: String,
    pub headings: Vec<Heading>,
    /// Plain text between the headings, for the search.
    pub sections: Vec<Section>,
}

pub(super) struct Heading {
    pub level: HeadingLevel,
    pub id: String,
    pub text: String,
}

#[derive(Default)]
pub(super) struct Section {
    /// Anchor of its heading; empty at the top of the page.
    pub id: String,
    pub title: String,
    pub text: String,
}

pub(super) fn article(page: &Page, markdown: &str) -> Article {
    let mut writer = Writer::new(page);
    for event in parser(markdown) {
        writer.write(event);
    }
    let mut html = String::with_capacity(markdown.len() * 2);
    html::push_html(&mut html, writer.out.into_iter());
    let title = writer.headings.iter().find(|heading| heading.level == HeadingLevel::H1);
    let title = title.map_or_else(|| page.source.to_owned(), |heading| heading.text.clone());
    for section in &mut writer.sections {
        section.text = section.text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    Article { title, html, headings: writer.headings, sections: writer.sections }
}

pub(super) fn parser(markdown: &str) -> Parser<'_> {
    Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_GFM)
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

struct Writer<'a> {
    page: &'a Page,
    out: Vec<Event<'a>>,
    /// Position in `out` of each open heading, link and block of HTML, with the destination of a link.
    open: Vec<(usize, String)>,
    is_in_heading: bool,
    /// Language and text of the open block of code.
    code: Option<(String, String)>,
    columns: Vec<Alignment>,
    is_in_head: bool,
    column: usize,
    /// How often each anchor was used.
    anchors: HashMap<String, usize>,
    headings: Vec<Heading>,
    sections: Vec<Section>,
}

impl<'a> Writer<'a> {
    fn new(page: &'a Page) -> Writer<'a> {
        Writer {
            page,
            out: Vec::new(),
            open: Vec::new(),
            is_in_heading: false,
            code: None,
            columns: Vec::new(),
            is_in_head: false,
            column: 0,
            anchors: HashMap::new(),
            headings: Vec::new(),
            sections: vec![Section::default()],
        }
    }

    fn html(&mut self, html: impl Into<CowStr<'a>>) {
        self.out.push(Event::Html(html.into()));
    }

    fn write(&mut self, event: Event<'a>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => {
                    self.note(&text);
                    self.out.push(Event::Text(text));
                }
            },
            Event::Code(text) => {
                self.note(&text);
                self.out.push(Event::Code(text));
            }
            Event::InlineHtml(html) => {
                let html = raw_html(self.page, &html);
                self.out.push(Event::InlineHtml(html.into()));
            }
            event => {
                self.note(" ");
                self.out.push(event);
            }
        }
    }

    fn start(&mut self, tag: Tag<'a>) {
        match tag {
            Tag::Heading { .. } => {
                self.is_in_heading = true;
                self.open.push((self.out.len(), String::new()));
            }
            Tag::HtmlBlock => self.open.push((self.out.len(), String::new())),
            Tag::Link { dest_url, .. } => self.open.push((self.out.len(), dest_url.into_string())),
            Tag::Image { link_type, dest_url, title, id } => {
                let dest_url = links::href(self.page, &dest_url).map_or(dest_url, CowStr::from);
                self.out.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
            }
            Tag::CodeBlock(kind) => self.code = Some((language(&kind), String::new())),
            Tag::Table(columns) => {
                self.columns = columns;
                self.html("<div class=\"table\">");
                self.out.push(Event::Start(Tag::Table(Vec::new())));
            }
            Tag::TableHead | Tag::TableRow => {
                (self.is_in_head, self.column) = (tag == Tag::TableHead, 0);
                self.out.push(Event::Start(tag));
            }
            Tag::TableCell => self.start_cell(),
            tag => self.out.push(Event::Start(tag)),
        }
    }

    /// Begins a cell. Its alignment is a class: a style would be inline.
    fn start_cell(&mut self) {
        let cell = if self.is_in_head { "th" } else { "td" };
        match self.columns.get(self.column) {
            Some(Alignment::Right) => self.html(format!("<{cell} class=\"right\">")),
            Some(Alignment::Center) => self.html(format!("<{cell} class=\"center\">")),
            _ => self.out.push(Event::Start(Tag::TableCell)),
        }
        self.column += 1;
    }

    fn end(&mut self, tag: TagEnd) {
        self.note(" ");
        match tag {
            TagEnd::Heading(level) => self.end_heading(level),
            TagEnd::Link => self.end_link(),
            TagEnd::HtmlBlock => {
                let (inner, _) = self.close();
                let lines = inner.iter().filter_map(|event| match event {
                    Event::Html(line) => Some(&**line),
                    _ => None,
                });
                let html = raw_html(self.page, &lines.collect::<String>());
                self.html(html);
            }
            TagEnd::CodeBlock => {
                let (language, code) = self.code.take().unwrap_or_default();
                self.note(&code);
                self.html(highlight::block(&language, &code));
            }
            TagEnd::Table => {
                self.out.push(Event::End(tag));
                self.html("</div>\n");
            }
            tag => self.out.push(Event::End(tag)),
        }
    }

    /// Adds text for the search.
    fn note(&mut self, text: &str) {
        if let Some(section) = self.sections.last_mut().filter(|_| !self.is_in_heading) {
            section.text.push_str(text);
        }
    }

    /// Content of the innermost open element, and the destination of a link.
    fn close(&mut self) -> (Vec<Event<'a>>, String) {
        let (at, link) = self.open.pop().unwrap_or_default();
        (self.out.split_off(at), link)
    }

    fn end_heading(&mut self, level: HeadingLevel) {
        self.is_in_heading = false;
        let (inner, _) = self.close();
        let text: String = inner.iter().map(raw_text).collect();
        let id = self.anchor(&text);
        let place = escape(&id);
        self.html(format!("<{level} id=\"{place}\">"));
        self.out.extend(inner);
        if level == HeadingLevel::H1 {
            self.html("</h1>\n");
        } else {
            let link =
                format!("<a class=\"anchor\" href=\"#{place}\" aria-label=\"Link to this section\">#</a>");
            self.html(format!("{link}</{level}>\n"));
            self.sections.push(Section { id: id.clone(), title: text.clone(), text: String::new() });
        }
        self.headings.push(Heading { level, id, text });
    }

    /// Anchor of a heading, as GitHub makes it.
    fn anchor(&mut self, text: &str) -> String {
        let slug = slug(text);
        let used = self.anchors.entry(slug.clone()).or_default();
        *used += 1;
        if *used == 1 { slug } else { format!("{slug}-{}", *used - 1) }
    }

    /// Writes a link for the site, or only its text if the target is not there. The name of a document as
    /// text becomes the title of its page.
    fn end_link(&mut self) {
        let (inner, link) = self.close();
        let text: String = inner.iter().map(raw_text).collect();
        let Some(href) = links::href(self.page, &link) else { return self.out.extend(inner) };
        let title = match links::target(self.page, &link) {
            Target::Page(page, _) if text.ends_with(".md") => summary::title(page),
            _ => None,
        };
        self.html(format!("<a href=\"{}\">", escape(&href)));
        match title {
            Some(title) => self.out.push(Event::Text(title.into())),
            None => self.out.extend(inner),
        }
        self.html("</a>");
    }
}

/// First word after the fence: `rust` of `rust,no_run`.
fn language(kind: &CodeBlockKind<'_>) -> String {
    let words = match kind {
        CodeBlockKind::Fenced(words) => &**words,
        CodeBlockKind::Indented => "",
    };
    words.split([',', ' ']).next().unwrap_or_default().to_owned()
}

/// Text of an event, without tags.
fn raw_text<'a>(event: &'a Event<'_>) -> &'a str {
    match event {
        Event::Text(text) | Event::Code(text) => text,
        Event::SoftBreak | Event::HardBreak => " ",
        _ => "",
    }
}

/// Lower case, without punctuation, blanks as dashes.
pub(super) fn slug(text: &str) -> String {
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// HTML of a document, without comments and with the links of the site.
fn raw_html(page: &Page, html: &str) -> String {
    let mut text = String::new();
    for (index, part) in html.split("<!--").enumerate() {
        let shown = if index == 0 { Some(part) } else { part.split_once("-->").map(|(_, after)| after) };
        text.push_str(shown.unwrap_or_default());
    }
    for attribute in [" src=\"", " href=\"", " srcset=\""] {
        let mut parts = text.split(attribute);
        let mut linked = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (link, after) = part.split_once('"').unwrap_or((part, ""));
            let href = links::href(page, link).unwrap_or_else(|| link.to_owned());
            linked.push_str(&format!("{attribute}{}\"{after}", escape(&href)));
        }
        text = linked;
    }
    text
}
