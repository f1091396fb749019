// deploy/minilog-dashboard.json drawn by Grafana's own components (@grafana/ui, Apache-2.0) from answers of a Prometheus.
//
// dashboard.json: the file of deploy/. results.json: {from_ms, to_ms, panels: {panel id: {refId: matrix}}}, a matrix as
// Prometheus' query_range gives it. tools/dashboard.py makes both and takes the picture.
import type { CSSProperties } from "react";
import { createRoot } from "react-dom/client";
import {
  applyFieldOverrides,
  createTheme,
  type DataFrame,
  dateTime,
  FieldColorModeId,
  FieldType,
  getFieldDisplayValues,
  ThemeContext,
} from "@grafana/data";
import {
  BigValue,
  BigValueColorMode,
  BigValueGraphMode,
  GlobalStyles,
  LegendDisplayMode,
  PanelChrome,
  TimeSeries,
} from "@grafana/ui";

const WIDTH_PX = 1600;
const COLUMNS = 24; // of Grafana's grid
const ROW_PX = 38; // of Grafana's grid, its gap with it
const GAP_PX = 8;

const theme = createTheme({ colors: { mode: "dark" } });
const asIs = (text: string) => text;
const loaded = async (name: string) => (await fetch(name)).json();
const [dashboard, results] = await Promise.all([loaded("dashboard.json"), loaded("results.json")]);
const from = dateTime(results.from_ms);
const to = dateTime(results.to_ms);

/** Prometheus' legend: "{{label}}" is the label's value. */
function legendOf(format: string, labels: Record<string, string>): string | undefined {
  return format.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? "") || undefined;
}

/** The panel's unit and thresholds, and the colours that Grafana takes where a panel names none. */
function configOf(panel: any) {
  const { thresholds, ...defaults } = panel.fieldConfig.defaults;
  const steps = thresholds?.steps.map((step: any) => ({ ...step, value: step.value ?? -Infinity }));
  const color = { mode: steps ? FieldColorModeId.Thresholds : FieldColorModeId.PaletteClassic };
  return { color, ...defaults, thresholds: steps && { ...thresholds, steps } };
}

/** A frame a series, of a time and a value. */
function framesOf(panel: any): DataFrame[] {
  const data = panel.targets.flatMap((target: any) =>
    results.panels[panel.id][target.refId].map((series: any) => ({
      refId: target.refId,
      length: series.values.length,
      fields: [
        { name: "Time", type: FieldType.time, config: {}, values: series.values.map(([time_s]: any) => time_s * 1000) },
        {
          name: "Value",
          type: FieldType.number,
          labels: series.metric,
          config: { ...configOf(panel), displayNameFromDS: legendOf(target.legendFormat, series.metric) },
          values: series.values.map(([, value]: any) => Number(value)),
        },
      ],
    })),
  );
  return applyFieldOverrides({ data, fieldConfig: panel.fieldConfig, theme, replaceVariables: asIs, timeZone: "utc" });
}

function Stat({ panel, width, height }: any) {
  const { fieldConfig, options } = panel;
  const data = framesOf(panel);
  const shown = { data, fieldConfig, reduceOptions: options.reduceOptions, theme, replaceVariables: asIs };
  return getFieldDisplayValues(shown).map(({ display: { text, numeric, color } }, number) => (
    <BigValue
      key={number}
      value={{ text, numeric, color }}
      width={width}
      height={height}
      theme={theme}
      colorMode={BigValueColorMode.Background}
      graphMode={BigValueGraphMode.None}
    />
  ));
}

function Series({ panel, width, height }: any) {
  return (
    <TimeSeries
      frames={framesOf(panel)}
      width={width}
      height={height}
      timeRange={{ from, to, raw: { from, to } }}
      timeZone="utc"
      structureRev={1}
      legend={{ calcs: [], displayMode: LegendDisplayMode.List, placement: "bottom", showLegend: true }}
    />
  );
}

const BODIES: Record<string, (props: any) => any> = { stat: Stat, timeseries: Series };

function Panel({ panel }: any) {
  const { x, y, w, h } = panel.gridPos;
  const width = (w * WIDTH_PX) / COLUMNS - GAP_PX;
  const height = h * ROW_PX - GAP_PX;
  const left = (x * WIDTH_PX) / COLUMNS + GAP_PX;
  const place: CSSProperties = { position: "absolute", left, top: y * ROW_PX, width, height };
  if (panel.type === "row") {
    return <h4 style={{ ...place, margin: 0, paddingTop: GAP_PX }}>{panel.title}</h4>;
  }
  const Body = BODIES[panel.type];
  return (
    <div style={place}>
      <PanelChrome title={panel.title} description={panel.description || undefined} width={width} height={height}>
        {(innerWidth, innerHeight) => <Body panel={panel} width={innerWidth} height={innerHeight} />}
      </PanelChrome>
    </div>
  );
}

const rows = Math.max(...dashboard.panels.map(({ gridPos }: any) => gridPos.y + gridPos.h));
createRoot(document.getElementById("root")!).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ position: "relative", width: WIDTH_PX + GAP_PX, height: rows * ROW_PX }}>
      {dashboard.panels.map((panel: any) => (
        <Panel key={panel.id} panel={panel} />
      ))}
    </div>
  </ThemeContext.Provider>,
);
