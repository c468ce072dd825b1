// What is wrong with links, tables and regions that scroll.
const lone = Array.from(document.querySelectorAll("main p a, main dd a, main li a")).filter((a) => !getComputedStyle(a).textDecorationLine.includes("underline"));
const bare = Array.from(document.querySelectorAll("table")).filter((t) => t.rows.length && (!t.caption || !t.caption.textContent.trim()));
const heads = Array.from(document.querySelectorAll("th")).filter((th) => !th.scope);
const scrolls = Array.from(document.querySelectorAll(".scroll, pre")).filter((e) => e.tabIndex !== 0);
const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth + 1;
const rules = { lone: lone.length, bare: bare.length, heads: heads.length, scrolls: scrolls.length, wide };
