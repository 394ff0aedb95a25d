// Preact with hooks, and htm in place of JSX.
import { h } from "preact";
import htm from "htm";
export { h, render, Fragment, createContext } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useReducer } from "preact/hooks";
export const html = htm.bind(h);
