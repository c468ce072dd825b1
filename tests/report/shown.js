// What the front page shows, and how to type into it.
const rows = () => Array.from(document.querySelectorAll("#board tbody:not(.controls) th.model a")).map((a) => a.textContent);
const heads = () => Array.from(document.querySelectorAll("#board thead tr:last-child th button")).map((b) => b.textContent);
const said = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const type = (id, text) => { const i = document.getElementById(id); i.value = text; i.dispatchEvent(new Event("input", { bubbles: true })); };
const tick = () => new Promise((done) => setTimeout(done, 5));
