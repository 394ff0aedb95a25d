// The icons of the interface: outlines of Lucide as elements of SVG.
export {
	Archive, ArrowDown, ArrowDownToLine, ArrowLeft, ArrowRight, ArrowUp, ArrowUpToLine, Ban,
	ChartColumn, Check, ChevronDown, ChevronRight, CircleAlert, CircleUser, Copy, Download, Eraser,
	History, Home, Inbox, Layers, Menu, Moon, Network, Pause, Pencil, Play, Plus, Radio, RotateCcw,
	Search, Shield, SlidersHorizontal, Square, SquareTerminal, Sun, SunMoon, Table2, Trash2,
	TriangleAlert, Users, Workflow, X,
} from "lucide";
