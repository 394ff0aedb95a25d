// uPlot: the charts of the statistics.
export { default as uPlot } from "uplot";
