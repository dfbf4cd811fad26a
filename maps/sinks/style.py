"""QGIS styles: the colours of a layer as a `.qml` beside its raster, which QGIS takes up when it opens it."""

from xml.etree import ElementTree

from maps.bands import Band
from maps.colours import Scale, table

#: Colours between the ends beside the labelled ones: a log scale is made of straight pieces.
PIECES = 17


def qml(band: Band, scale: Scale) -> str:
    """The style of a single-band raster: the legend's colours between its ends, a label at each of its ticks.

    Examples
    --------
    >>> from maps.bands import bands
    >>> text = qml(bands(ds, ["exceedance_25"])[0], Scale(0.0, 1.0))
    >>> ElementTree.fromstring(text.split("\\n", 1)[1]).find("pipe/rasterrenderer").get("type")
    'singlebandpseudocolor'
    """
    low, high = str(scale.low), str(scale.high)
    root = ElementTree.Element("qgis", version="3.28.0", styleCategories="Symbology|MapTips")
    pipe = ElementTree.SubElement(root, "pipe")
    renderer = ElementTree.SubElement(
        pipe,
        "rasterrenderer",
        type="singlebandpseudocolor",
        band="1",
        opacity="1",
        alphaBand="-1",
        nodataColor="",
        classificationMin=low,
        classificationMax=high,
    )
    ElementTree.SubElement(renderer, "rasterTransparency")
    origin = ElementTree.SubElement(renderer, "minMaxOrigin")
    for name, words in (("limits", "None"), ("extent", "WholeRaster"), ("statAccuracy", "Estimated")):
        ElementTree.SubElement(origin, name).text = words
    shader = ElementTree.SubElement(
        ElementTree.SubElement(renderer, "rastershader"),
        "colorrampshader",
        colorRampType="INTERPOLATED",
        classificationMode="1",
        clip="0",
        minimumValue=low,
        maximumValue=high,
        labelPrecision="4",
    )
    colours = table(band.colours)
    labels = {round(at, 6): words for at, words in scale.labels(10)}
    for at in sorted({*labels, *(round(i / (PIECES - 1), 6) for i in range(PIECES))}):
        r, g, b = (int(v) for v in colours[round(at * 255)])
        words = " ".join(w for w in (labels.get(at, ""), band.unit_text if at in labels else "") if w)
        ElementTree.SubElement(
            shader,
            "item",
            value=repr(scale.value(at)),
            label=words,
            alpha="255",
            color=f"#{r:02x}{g:02x}{b:02x}",
        )
    legend = ElementTree.SubElement(shader, "rampLegendSettings", useContinuousLegend="0", orientation="2")
    legend.tail = None
    ElementTree.SubElement(root, "mapTip").text = f"{band.title}: {band.about}"
    ElementTree.SubElement(root, "blendMode").text = "0"
    ElementTree.indent(root)
    return "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n" + ElementTree.tostring(
        root, encoding="unicode"
    )
