/* Which view is shown: the part of the address behind `#`. A view is built when it is first shown and then kept, with what
	 was typed in it. */

const views = new Map();
let shown = null;

/** Declare a view: `build()` returns {root, shown?(argument)}. */
export function register(id, build) {
	views.set(id, { build, built: null });
}

export function go(id, argument) {
	location.hash = id;
	show(id, argument);
}

export function show(id, argument) {
	const view = views.get(id) ?? views.get("waiting");
	if (!view.built) {
		view.built = view.build();
		view.built.root.id = `view-${id}`;
		document.getElementById("content").append(view.built.root);
	}
	const isNew = shown !== view;
	if (isNew && shown) shown.built.root.hidden = true;
	view.built.root.hidden = false;
	shown = view;
	if (isNew || argument) view.built.shown?.(argument);
	return isNew;
}
