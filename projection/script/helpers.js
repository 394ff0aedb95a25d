// What the engine has no function of Go for, or does in loops of its own, which no interrupt reaches.
// Each part takes what it needs of the language before the script runs, as that may change it. The
// function makes the part of that name.
(function(part, ...args) {
	const {keys} = Object;
	const isObject = v => typeof v === "object" && v !== null || typeof v === "function";

	// dates makes a constructor in the place of Date's. Only JavaScript tells a call from a
	// construction.
	const dates = (Class, upper) => {
		const {construct} = Reflect;
		return function Date(...a) {
			if (new.target === undefined) return Class();
			if (a.length === 1 && typeof a[0] === "string") a[0] = upper(a[0]);
			return construct(Class, a, new.target);
		};
	};

	// lists makes arrays of iterables and array-likes. length is that of an array-like, if it is not
	// too long.
	const lists = (most, deepest, length) => {
		const {isArray} = Array, {iterator} = Symbol, {create, getOwnPropertySymbols} = Object, {apply, has} = Reflect;
		const {propertyIsEnumerable} = Object.prototype, Long = RangeError, Wrong = TypeError, View = Proxy;
		const collect = (v, count) => {
			const list = [];
			for (const item of v) {
				if (list.length >= most) throw new Long(`an iterator of more than ${most} values is too long`);
				list[list.length] = item;
				if (list.length === count) break;
			}
			return list;
		};
		const copied = o => {
			const list = [], n = length(o);
			for (let i = 0; i < n; i++) list[i] = o[i];
			return list;
		};
		// shaped is a value as a pattern may take it apart: its rest elements get arrays that nothing
		// else uses.
		const shaped = (s, v) => {
			if (s === null || v === undefined || v === null) return v;
			if (s.names === null) {
				const list = collect(v, s.rest ? -1 : s.count);
				for (let i = 0; i < s.items.length; i++) {
					const at = s.items[i];
					if (at < list.length) list[at] = shaped(s.inner[i], list[at]);
				}
				return list;
			}
			const o = Object(v), view = create(null);
			for (let i = 0; i < s.names.length; i++) view[s.names[i]] = shaped(s.inner[i], o[s.names[i]]);
			if (!s.rest) return view;
			const names = keys(o), symbols = getOwnPropertySymbols(o);
			for (let i = 0; i < names.length; i++) if (!(names[i] in view)) view[names[i]] = o[names[i]];
			for (let i = 0; i < symbols.length; i++) if (apply(propertyIsEnumerable, o, [symbols[i]])) view[symbols[i]] = o[symbols[i]];
			return view;
		};
		return {
			collect, copied, shaped,
			// list makes an array of the script's iterable, or of its array-like.
			list: v => {
				if (typeof v === "string" || isObject(v) && v[iterator] !== undefined && v[iterator] !== null) return collect(v, -1);
				return isObject(v) ? copied(v) : v;
			},
			// scope is what a with statement puts in scope: names of ours are not looked up in it.
			scope: v => v === undefined || v === null ? v : new View(Object(v), {has: (o, k) => !(typeof k === "string" && k[0] === "\0") && has(o, k)}),
			// other is what a method of sets walks: it ends before the end of an iterator.
			other: o => {
				if (!isObject(o)) return o;
				const {keys: walk, has: holds, size} = o;
				if (typeof walk !== "function" || typeof holds !== "function") return o;
				return {
					size,
					has: v => apply(holds, o, [v]),
					keys: () => {
						const steps = apply(walk, o, []), {next} = steps, end = steps.return;
						if (typeof next !== "function") throw new Wrong("next is not a function");
						const ours = {next: () => apply(next, steps, [])};
						if (typeof end === "function") ours.return = () => apply(end, steps, []);
						return ours;
					},
				};
			},
			flat: {flat(depth = 1) {
				if (!isObject(this)) throw new Wrong("flat needs an array");
				const list = [];
				const walk = (o, depth, level) => {
					if (level > deepest) throw new Long(`flat: arrays nested deeper than ${deepest} levels`);
					for (let i = 0, n = length(o); i < n; i++) {
						const v = o[i];
						if (list.length >= most) throw new Long(`flat: more than ${most} elements`);
						if (depth >= 1 && isArray(v)) walk(v, depth - 1, level + 1);
						else if (v !== undefined || i in o) list[list.length] = v;
					}
				};
				walk(this, +depth, 0);
				return list;
			}}.flat,
		};
	};

	// expressions match, replace and split, one match after the other. The engine's own functions do
	// all in a loop that calls the expression's exec, which a script can replace.
	const expressions = (most, replaceOne) => {
		const {apply} = Reflect, {getOwnPropertyDescriptor} = Object, {min, max, trunc} = Math, {substring, charCodeAt} = String.prototype, {join} = Array.prototype;
		const Expression = RegExp, prototype = RegExp.prototype, {species} = Symbol, Long = RangeError, Wrong = TypeError;
		const part = (s, a, b) => apply(substring, s, [a, b]);
		const has = (s, c) => {
			for (let i = 0; i < s.length; i++) if (s[i] === c) return true;
			return false;
		};
		const whole = v => (v = trunc(+v)) === v ? v : 0;
		const length = v => max(min(whole(v), 2 ** 53 - 1), 0);
		const pair = (s, i) => i + 1 < s.length && (apply(charCodeAt, s, [i]) & 0xfc00) === 0xd800 && (apply(charCodeAt, s, [i + 1]) & 0xfc00) === 0xdc00;
		const advance = (s, i, unicode) => i + (unicode && pair(s, i) ? 2 : 1);
		const exec = (r, s) => {
			const m = r.exec(s);
			if (m !== null && typeof m !== "object" && typeof m !== "function") throw new Wrong("exec returned something other than an object or null");
			return m;
		};
		const all = (r, s, flags, take) => {
			const list = [], unicode = has(flags, "u");
			r.lastIndex = 0;
			for (;;) {
				const m = exec(r, s);
				if (m === null) return list;
				const text = `${m[0]}`;
				list[list.length] = take ? text : m;
				if (text === "") r.lastIndex = advance(s, length(r.lastIndex), unicode);
			}
		};
		const classOf = r => {
			let c = r.constructor;
			if (c === undefined) return Expression;
			if (c === null || typeof c !== "object" && typeof c !== "function") throw new Wrong("constructor is not an object");
			c = c[species];
			return c === undefined || c === null ? Expression : c;
		};
		const exact = (f, c) => f.get === c.get && f.value === c.value;
		const getters = [];
		for (const name of ["global", "ignoreCase", "multiline", "dotAll", "unicode", "sticky", "flags", "source"]) getters[getters.length] = getOwnPropertyDescriptor(prototype, name).get;
		const first = getOwnPropertyDescriptor(prototype, "exec");
		return {
			getters,
			intact: () => {
				const d = getOwnPropertyDescriptor(prototype, "exec");
				return d !== undefined && exact(d, first);
			},
			match: (r, s) => {
				const flags = `${r.flags}`;
				if (!has(flags, "g")) return exec(r, s);
				const list = all(r, s, flags, true);
				return list.length ? list : null;
			},
			replace: (r, s, by) => {
				const flags = `${r.flags}`;
				let list = [];
				if (has(flags, "g")) list = all(r, s, flags, false);
				else {
					const m = exec(r, s);
					if (m !== null) list[0] = m;
				}
				const calls = typeof by === "function", context = !calls && (has(by, "`") || has(by, "'"));
				const pieces = [], plain = !calls && !has(by, "$");
				let size = 0, next = 0;
				for (let i = 0; i < list.length; i++) {
					const m = list[i], n = length(m.length), found = `${m[0]}`;
					const at = max(min(whole(m.index), s.length), 0), end = at + found.length, one = [found];
					for (let k = 1; k < n; k++) {
						const c = m[k];
						one[k] = c === undefined ? c : `${c}`;
					}
					const {groups} = m;
					let to;
					if (calls) {
						one[one.length] = at;
						one[one.length] = s;
						if (groups !== undefined) one[one.length] = groups;
						to = `${apply(by, undefined, one)}`;
					} else if (plain) to = by;
					else if (context) {
						to = replaceOne(one, at, groups, s, by);
						to = part(to, at, to.length - max(s.length - end, 0));
					} else to = replaceOne(one, 0, groups, found, by);
					if (at >= next) {
						pieces[pieces.length] = part(s, next, at);
						pieces[pieces.length] = to;
						size += at - next + to.length;
						next = end;
					}
					if (size > most) throw new Long("the text that replacements make is too long: more than " + most + " characters");
				}
				if (next < s.length) pieces[pieces.length] = part(s, next, s.length);
				return apply(join, pieces, [""]);
			},
			split: (r, s, limit, plain) => {
				const flags = `${r.flags}`, unicode = has(flags, "u"), list = [];
				let t, plainly = "g";
				for (let i = 0; i < flags.length; i++) if (flags[i] !== "g" && flags[i] !== "y") plainly += flags[i];
				if (plain) t = new Expression(r, plainly);
				else t = new (classOf(r))(r, has(flags, "y") ? flags : flags + "y");
				const size = s.length, count = limit === undefined ? 2 ** 32 - 1 : limit >>> 0;
				if (count === 0) return list;
				if (size === 0) return exec(t, s) === null ? [s] : list;
				let p = 0, q = 0;
				while (q < size) {
					t.lastIndex = q;
					const m = exec(t, s);
					if (plain) {
						if (m === null || m.index >= size) break;
						q = m.index;
					}
					const e = m === null ? p : min(length(t.lastIndex), size);
					if (e === p) {
						q = advance(s, q, unicode);
						continue;
					}
					list[list.length] = part(s, p, q);
					if (list.length === count) return list;
					p = e;
					for (let i = 1, n = length(m.length); i < n; i++) {
						list[list.length] = m[i];
						if (list.length === count) return list;
					}
					q = p;
				}
				list[list.length] = part(s, p, size);
				return list;
			},
		};
	};

	const basic = () => ({
		put: (o, k, v) => { o[k] = v },
		odd: (o, i, value) => { const k = keys(o)[i]; return value ? o[k] : k },
		generator: Object.getPrototypeOf(function*() {}),
		async: Object.getPrototypeOf(async function() {}),
	});

	return {basic, dates, lists, expressions}[part](...args);
})
