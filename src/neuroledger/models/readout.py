"""Read decisions out of features: labels such as ImageNet's classes, probabilities, and odd-one-out choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.errors import ModelError, RequestError

CLASSES: Final = 1000


def _indices(text: str) -> tuple[int, ...]:
    """``"8 10-12"`` → ``(8, 10, 11, 12)``."""
    indices: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        indices += range(int(first), int(last or first) + 1)
    return tuple(indices)


# The sixteen categories of Geirhos et al. (2018), then the categories added by later experiments.
CATEGORIES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        name: _indices(text)
        for name, text in {
            "airplane": "404",
            "bear": "294-297",
            "bicycle": "444 671",
            "bird": "8 10-16 18-20 22-24 80-83 87-96 98-100 127-133 135-145",
            "boat": "472 554 625 814 914",
            "bottle": "440 720 737 898-899 901 907",
            "car": "436 511 817",
            "cat": "281-286",
            "chair": "423 559 765 857",
            "clock": "409 530 892",
            "dog": "152-191 193-203 205-226 228-241 243-250 252-257 259 261-263 265-268",
            "elephant": "385-386",
            "keyboard": "508 878",
            "knife": "499",
            "oven": "766",
            "truck": "555 569 656 675 717 734 864 867",
            "aeroplane": "404 895",
            "banana": "954",
            "beanie": "439 452 515 808",
            "binoculars": "447",
            "boot": "514",
            "bowl": "659 809",
            "bunny": "330-332",
            "bus": "654 779 874",
            "cup": "968",
            "frog": "30-32",
            "glasses": "837",
            "lamp": "470 607 818 846",
            "lizard": "38-48",
            "motorbike": "665 670",
            "pan": "567",
            "sewingmachine": "786",
            "shovel": "792",
            "tiger": "286-293",
            "turtle": "33-37",
            "wolf": "269-275",
        }.items()
    }
)

# WordNet offsets of the classes (russakovsky2015).
_OFFSETS: Final = """
01440764 01443537 01484850 01491361 01494475 01496331 01498041 01514668 01514859 01518878 01530575
01531178 01532829 01534433 01537544 01558993 01560419 01580077 01582220 01592084 01601694 01608432
01614925 01616318 01622779 01629819 01630670 01631663 01632458 01632777 01641577 01644373 01644900
01664065 01665541 01667114 01667778 01669191 01675722 01677366 01682714 01685808 01687978 01688243
01689811 01692333 01693334 01694178 01695060 01697457 01698640 01704323 01728572 01728920 01729322
01729977 01734418 01735189 01737021 01739381 01740131 01742172 01744401 01748264 01749939 01751748
01753488 01755581 01756291 01768244 01770081 01770393 01773157 01773549 01773797 01774384 01774750
01775062 01776313 01784675 01795545 01796340 01797886 01798484 01806143 01806567 01807496 01817953
01818515 01819313 01820546 01824575 01828970 01829413 01833805 01843065 01843383 01847000 01855032
01855672 01860187 01871265 01872401 01873310 01877812 01882714 01883070 01910747 01914609 01917289
01924916 01930112 01943899 01944390 01945685 01950731 01955084 01968897 01978287 01978455 01980166
01981276 01983481 01984695 01985128 01986214 01990800 02002556 02002724 02006656 02007558 02009229
02009912 02011460 02012849 02013706 02017213 02018207 02018795 02025239 02027492 02028035 02033041
02037110 02051845 02056570 02058221 02066245 02071294 02074367 02077923 02085620 02085782 02085936
02086079 02086240 02086646 02086910 02087046 02087394 02088094 02088238 02088364 02088466 02088632
02089078 02089867 02089973 02090379 02090622 02090721 02091032 02091134 02091244 02091467 02091635
02091831 02092002 02092339 02093256 02093428 02093647 02093754 02093859 02093991 02094114 02094258
02094433 02095314 02095570 02095889 02096051 02096177 02096294 02096437 02096585 02097047 02097130
02097209 02097298 02097474 02097658 02098105 02098286 02098413 02099267 02099429 02099601 02099712
02099849 02100236 02100583 02100735 02100877 02101006 02101388 02101556 02102040 02102177 02102318
02102480 02102973 02104029 02104365 02105056 02105162 02105251 02105412 02105505 02105641 02105855
02106030 02106166 02106382 02106550 02106662 02107142 02107312 02107574 02107683 02107908 02108000
02108089 02108422 02108551 02108915 02109047 02109525 02109961 02110063 02110185 02110341 02110627
02110806 02110958 02111129 02111277 02111500 02111889 02112018 02112137 02112350 02112706 02113023
02113186 02113624 02113712 02113799 02113978 02114367 02114548 02114712 02114855 02115641 02115913
02116738 02117135 02119022 02119789 02120079 02120505 02123045 02123159 02123394 02123597 02124075
02125311 02127052 02128385 02128757 02128925 02129165 02129604 02130308 02132136 02133161 02134084
02134418 02137549 02138441 02165105 02165456 02167151 02168699 02169497 02172182 02174001 02177972
02190166 02206856 02219486 02226429 02229544 02231487 02233338 02236044 02256656 02259212 02264363
02268443 02268853 02276258 02277742 02279972 02280649 02281406 02281787 02317335 02319095 02321529
02325366 02326432 02328150 02342885 02346627 02356798 02361337 02363005 02364673 02389026 02391049
02395406 02396427 02397096 02398521 02403003 02408429 02410509 02412080 02415577 02417914 02422106
02422699 02423022 02437312 02437616 02441942 02442845 02443114 02443484 02444819 02445715 02447366
02454379 02457408 02480495 02480855 02481823 02483362 02483708 02484975 02486261 02486410 02487347
02488291 02488702 02489166 02490219 02492035 02492660 02493509 02493793 02494079 02497673 02500267
02504013 02504458 02509815 02510455 02514041 02526121 02536864 02606052 02607072 02640242 02641379
02643566 02655020 02666196 02667093 02669723 02672831 02676566 02687172 02690373 02692877 02699494
02701002 02704792 02708093 02727426 02730930 02747177 02749479 02769748 02776631 02777292 02782093
02783161 02786058 02787622 02788148 02790996 02791124 02791270 02793495 02794156 02795169 02797295
02799071 02802426 02804414 02804610 02807133 02808304 02808440 02814533 02814860 02815834 02817516
02823428 02823750 02825657 02834397 02835271 02837789 02840245 02841315 02843684 02859443 02860847
02865351 02869837 02870880 02871525 02877765 02879718 02883205 02892201 02892767 02894605 02895154
02906734 02909870 02910353 02916936 02917067 02927161 02930766 02939185 02948072 02950826 02951358
02951585 02963159 02965783 02966193 02966687 02971356 02974003 02977058 02978881 02979186 02980441
02981792 02988304 02992211 02992529 02999410 03000134 03000247 03000684 03014705 03016953 03017168
03018349 03026506 03028079 03032252 03041632 03042490 03045698 03047690 03062245 03063599 03063689
03065424 03075370 03085013 03089624 03095699 03100240 03109150 03110669 03124043 03124170 03125729
03126707 03127747 03127925 03131574 03133878 03134739 03141823 03146219 03160309 03179701 03180011
03187595 03188531 03196217 03197337 03201208 03207743 03207941 03208938 03216828 03218198 03220513
03223299 03240683 03249569 03250847 03255030 03259280 03271574 03272010 03272562 03290653 03291819
03297495 03314780 03325584 03337140 03344393 03345487 03347037 03355925 03372029 03376595 03379051
03384352 03388043 03388183 03388549 03393912 03394916 03400231 03404251 03417042 03424325 03425413
03443371 03444034 03445777 03445924 03447447 03447721 03450230 03452741 03457902 03459775 03461385
03467068 03476684 03476991 03478589 03481172 03482405 03483316 03485407 03485794 03492542 03494278
03495258 03496892 03498962 03527444 03529860 03530642 03532672 03534580 03535780 03538406 03544143
03584254 03584829 03590841 03594734 03594945 03595614 03598930 03599486 03602883 03617480 03623198
03627232 03630383 03633091 03637318 03642806 03649909 03657121 03658185 03661043 03662601 03666591
03670208 03673027 03676483 03680355 03690938 03691459 03692522 03697007 03706229 03709823 03710193
03710637 03710721 03717622 03720891 03721384 03724870 03729826 03733131 03733281 03733805 03742115
03743016 03759954 03761084 03763968 03764736 03769881 03770439 03770679 03773504 03775071 03775546
03776460 03777568 03777754 03781244 03782006 03785016 03786901 03787032 03788195 03788365 03791053
03792782 03792972 03793489 03794056 03796401 03803284 03804744 03814639 03814906 03825788 03832673
03837869 03838899 03840681 03841143 03843555 03854065 03857828 03866082 03868242 03868863 03871628
03873416 03874293 03874599 03876231 03877472 03877845 03884397 03887697 03888257 03888605 03891251
03891332 03895866 03899768 03902125 03903868 03908618 03908714 03916031 03920288 03924679 03929660
03929855 03930313 03930630 03933933 03935335 03937543 03938244 03942813 03944341 03947888 03950228
03954731 03956157 03958227 03961711 03967562 03970156 03976467 03976657 03977966 03980874 03982430
03983396 03991062 03992509 03995372 03998194 04004767 04005630 04008634 04009552 04019541 04023962
04026417 04033901 04033995 04037443 04039381 04040759 04041544 04044716 04049303 04065272 04067472
04069434 04070727 04074963 04081281 04086273 04090263 04099969 04111531 04116512 04118538 04118776
04120489 04125021 04127249 04131690 04133789 04136333 04141076 04141327 04141975 04146614 04147183
04149813 04152593 04153751 04154565 04162706 04179913 04192698 04200800 04201297 04204238 04204347
04208210 04209133 04209239 04228054 04229816 04235860 04238763 04239074 04243546 04251144 04252077
04252225 04254120 04254680 04254777 04258138 04259630 04263257 04264628 04265275 04266014 04270147
04273569 04275548 04277352 04285008 04286575 04296562 04310018 04311004 04311174 04317175 04325704
04326547 04328186 04330267 04332243 04335435 04336792 04344873 04346328 04347754 04350905 04355338
04355933 04356056 04357314 04366367 04367480 04370456 04371430 04371774 04372370 04376876 04380533
04389033 04392985 04398044 04399382 04404412 04409515 04417672 04418357 04423845 04428191 04429376
04435653 04442312 04443257 04447861 04456115 04458633 04461696 04462240 04465501 04467665 04476259
04479046 04482393 04483307 04485082 04486054 04487081 04487394 04493381 04501370 04505470 04507155
04509417 04515003 04517823 04522168 04523525 04525038 04525305 04532106 04532670 04536866 04540053
04542943 04548280 04548362 04550184 04552348 04553703 04554684 04557648 04560804 04562935 04579145
04579432 04584207 04589890 04590129 04591157 04591713 04592741 04596742 04597913 04599235 04604644
04606251 04612504 04613696 06359193 06596364 06785654 06794110 06874185 07248320 07565083 07579787
07583066 07584110 07590611 07613480 07614500 07615774 07684084 07693725 07695742 07697313 07697537
07711569 07714571 07714990 07715103 07716358 07716906 07717410 07717556 07718472 07718747 07720875
07730033 07734744 07742313 07745940 07747607 07749582 07753113 07753275 07753592 07754684 07760859
07768694 07802026 07831146 07836838 07860988 07871810 07873807 07875152 07880968 07892512 07920052
07930864 07932039 09193705 09229709 09246464 09256479 09288635 09332890 09399592 09421951 09428293
09468604 09472597 09835506 10148035 10565667 11879895 11939491 12057211 12144580 12267677 12620546
12768682 12985857 12998815 13037406 13040303 13044778 13052670 13054560 13133613 15075141
"""

SYNSETS: Final = tuple(f"n{offset}" for offset in _OFFSETS.split())
"""Class index → WordNet id of the noun."""


PENALTY: Final = 1e-3
TRIPLET: Final = 3
PAIRS: Final = ((0, 1), (0, 2), (1, 2))


def probabilities(
    fitting: Array, labels: Sequence[str], features: Array, stimulus_ids: Sequence[str]
) -> xr.DataArray:
    """Return the probability of each label for each stimulus, (presentation, choice), by logistic regression.

    ``labels`` belong to the rows of ``fitting`` (stimulus, feature). Features are standardised, and the regression is
    multinomial with C = 0.001, as in Brain-Score, also for two labels, where the weights of both are penalised.
    Choices are in order of first occurrence of the labels.

    Raises
    ------
    RequestError
        There are fewer than two different labels.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    choices = list(dict.fromkeys(labels))
    if len(choices) < 2:
        raise RequestError(
            f"a readout needs at least two labels; the fitting stimuli have {choices}"
        )
    scaler = StandardScaler().fit(fitting)
    codes = np.array([choices.index(label) for label in labels])
    # The binomial model penalises one weight w; the multinomial one penalises w/2 and -w/2, which costs half as much.
    penalty = PENALTY * 2 if len(choices) == 2 else PENALTY
    model = LogisticRegression(C=penalty, solver="newton-cg", max_iter=100)
    model.fit(scaler.transform(fitting), codes)
    values = model.predict_proba(scaler.transform(features))
    return xr.DataArray(
        values,
        dims=("presentation", "choice"),
        coords={
            "stimulus_id": ("presentation", np.asarray(stimulus_ids, dtype=object)),
            "choice": np.asarray(choices, dtype=object),
        },
    )


def odd_one_out(
    features: Array,
    stimulus_ids: Sequence[str],
    *,
    similarity: Literal["dot", "cosine"] = "dot",
    triplets: Sequence[tuple[str, str, str]] = (),
) -> xr.DataArray:
    """Return the odd stimulus of each triplet: (presentation,) stimulus ids.

    The stimulus outside the most similar pair is odd; if pairs tie, the first (1–2, then 1–3, then 2–3) wins.
    ``stimulus_id`` of a presentation contains its three stimulus ids, joined by ``|``. Without ``triplets`` each three
    consecutive rows are a triplet; with them every stimulus is one row, and similarities come from one Gram matrix.

    Raises
    ------
    RequestError
        The number of rows is not a multiple of three, or a triplet names a stimulus that has no row.
    """
    names = np.asarray(stimulus_ids, dtype=object)
    if triplets:
        place = {str(id): row for row, id in enumerate(names)}
        missing = sorted(
            {id for triplet in triplets for id in triplet if id not in place}
        )
        if missing:
            raise RequestError(
                f"{len(missing)} stimuli of the triplets have no features, first {missing[0]!r}"
            )
        rows = np.asarray(
            [[place[id] for id in triplet] for triplet in triplets], dtype=np.intp
        )
    else:
        if len(features) % TRIPLET:
            raise RequestError(
                f"odd one out needs a multiple of three stimuli, not {len(features)}"
            )
        rows = np.arange(len(features), dtype=np.intp).reshape(-1, TRIPLET)
    first, second, third = rows.T
    if triplets:
        gram = features @ features.T
        pairs = np.stack(
            [gram[first, second], gram[first, third], gram[second, third]], axis=1
        )
    else:
        threes = features[rows]
        pairs = np.stack(
            [np.einsum("tf,tf->t", threes[:, i], threes[:, j]) for i, j in PAIRS],
            axis=1,
        )
    if similarity == "cosine":
        norms = np.sqrt(np.einsum("nf,nf->n", features, features))[rows]
        lengths = [norms[:, i] * norms[:, j] for i, j in PAIRS]
        pairs = pairs / np.stack(lengths, axis=1)
    odd = rows[np.arange(len(rows)), 2 - np.argmax(pairs, axis=1)]
    joined = np.array(
        ["|".join(map(str, names[triplet])) for triplet in rows], dtype=object
    )
    return xr.DataArray(
        names[odd],
        dims="presentation",
        coords={"stimulus_id": ("presentation", joined)},
    )


def label(
    logits: Array,
    stimulus_ids: Sequence[str],
    choices: Sequence[str],
    *,
    model: str,
    labels: Sequence[str] = (),
) -> xr.DataArray:
    """Return the chosen label of each stimulus, (presentation,), from logits of ``labels`` or of the ImageNet classes.

    With ``labels``, one per logit, the largest logit among ``choices`` wins. Without them, the logits are those of the
    1,000 ImageNet classes: a category's probability is the mean of the softmax over its classes, and the most probable
    category wins (geirhos2018). If ``imagenet`` is the only choice, the answer is the WordNet id of the largest logit.

    Raises
    ------
    ModelError
        The readout layer does not have one logit per label.
    RequestError
        A choice is not among the labels, or not a category whose ImageNet classes are known.
    """
    if labels:
        return _label_among(logits, stimulus_ids, choices, labels, model)
    if logits.shape[1] != CLASSES:
        raise ModelError(
            f"model {model!r}: labels need the {CLASSES} ImageNet logits, but its readout layer has {logits.shape[1]} "
            "features; name the layer of `logits` (`output` is the network's output) and their `labels`"
        )
    if tuple(choices) == ("imagenet",):
        return _decisions(
            np.asarray(SYNSETS, dtype=object)[np.argmax(logits, axis=1)], stimulus_ids
        )
    unknown = sorted(set(choices) - set(CATEGORIES))
    if unknown or not choices:
        raise RequestError(
            f"no ImageNet classes are known for {unknown or 'an empty list of choices'}; known: {sorted(CATEGORIES)}"
        )
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    softmax = powers / powers.sum(axis=1, keepdims=True)
    means = np.stack(
        [softmax[:, list(CATEGORIES[choice])].mean(axis=1) for choice in choices],
        axis=1,
    )
    return _decisions(
        np.asarray(list(choices), dtype=object)[np.argmax(means, axis=1)], stimulus_ids
    )


def _label_among(
    logits: Array,
    stimulus_ids: Sequence[str],
    choices: Sequence[str],
    labels: Sequence[str],
    model: str,
) -> xr.DataArray:
    if logits.shape[1] != len(labels):
        raise ModelError(
            f"model {model!r}: its readout layer has {logits.shape[1]} features, but there are {len(labels)} labels"
        )
    unknown = [choice for choice in choices if choice not in labels]
    if unknown or not choices:
        raise RequestError(
            f"model {model!r} has no label for {unknown or 'an empty list of choices'}; its labels are {list(labels)}"
        )
    chosen = logits[:, [list(labels).index(choice) for choice in choices]]
    return _decisions(
        np.asarray(list(choices), dtype=object)[np.argmax(chosen, axis=1)], stimulus_ids
    )


def _decisions(labels: Array, stimulus_ids: Sequence[str]) -> xr.DataArray:
    coords = {"stimulus_id": ("presentation", np.asarray(stimulus_ids, dtype=object))}
    return xr.DataArray(labels, dims="presentation", coords=coords)
