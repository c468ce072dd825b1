// The search of the documents opens from disk too: the index is a script, because browsers fetch nothing beside a file.
addEventListener("DOMContentLoaded", () => {
  const input = document.getElementById("mkdocs-search-query");
  const shown = document.getElementById("mkdocs-search-results");
  const MOST = 30;
  let prepared = null;

  const load = (name) =>
    new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = `${base_url}/search/${name}`;
      script.onload = done;
      script.onerror = () => failed(new Error(`${script.src} cannot be loaded`));
      document.head.append(script);
    });

  const prepare = async () => {
    await load("lunr.js");
    await load("index.js");
    const pages = new Map(window.searchIndex.docs.map((page) => [page.location, page]));
    const index = lunr(function () {
      this.ref("location");
      this.field("title", { boost: 10 });
      this.field("text");
      pages.forEach((page) => this.add(page));
    });
    return { index, pages };
  };

  const found = ({ index, pages }, words) => {
    const hits = index.query((query) => {
      for (const token of lunr.tokenizer(words)) {
        query.term(token, { boost: 10 });
        query.term(token, { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
      }
    });
    return hits.slice(0, MOST).map((hit) => {
      const whole = pages.get(hit.ref.split("#")[0]);
      const part = pages.get(hit.ref);
      return { ...part, title: whole && whole.title !== part.title ? `${whole.title}: ${part.title}` : part.title };
    });
  };

  const item = (page, words) => {
    const article = document.createElement("article");
    const title = article.appendChild(document.createElement("h3"));
    const link = title.appendChild(document.createElement("a"));
    link.href = `${base_url}/${page.location}`;
    link.textContent = page.title;
    const at = Math.max(0, page.text.toLowerCase().indexOf(words.toLowerCase().split(/\s+/)[0]) - 60);
    article.appendChild(document.createElement("p")).textContent = page.text.slice(at, at + 200);
    return article;
  };

  const search = async () => {
    const words = input.value.trim();
    prepared ??= prepare();
    const ready = await prepared;
    if (words !== input.value.trim()) return; // more was typed meanwhile
    const pages = words.length > 1 ? found(ready, words) : [];
    const none = document.createElement("p");
    none.textContent = words.length > 1 ? "Nothing found." : "";
    shown.replaceChildren(...(pages.length ? pages.map((page) => item(page, words)) : [none]));
  };

  shown.setAttribute("aria-live", "polite");
  input.form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", search);
});
