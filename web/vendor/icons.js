// The icons of the interface: outlines of Lucide as elements of SVG.
export {
	Activity, Archive, ArrowDown, ArrowDownToLine, ArrowLeft, ArrowRight, ArrowUp, ArrowUpToLine, Ban, Boxes, Braces, ChartColumn, Check, ChevronDown, ChevronRight, CircleAlert,
	CircleCheck, CircleHelp, CircleUser, Clock, Copy, Database, Download, Ellipsis, Eraser, FilePlus, Filter, Flag, GitBranch, History, Home, Inbox, Info,
	Layers, Link, ListFilter, LogIn, LogOut, Menu, Moon, Network, Pause, Pencil, Play, Plus, Power, Radio, RefreshCw, RotateCcw, Search, Server, Shield, SlidersHorizontal,
	Sparkles, Square, SquareTerminal, Sun, SunMoon, Table2, Trash2, TriangleAlert, Users, Waypoints, Workflow, X,
} from "lucide";
