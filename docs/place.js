// What the theme's own scripts read: where the site begins as seen from this page, and the keys it listens to.
var base_url = document.currentScript.dataset.base;
var shortcuts = JSON.parse(document.currentScript.dataset.shortcuts);
