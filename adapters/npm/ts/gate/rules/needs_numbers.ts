/** What a gate lacks that was not made for this. */
export const NEEDS_NUMBERS = 'write the option limits: limitsFromData, of "@tidegate/edge/gate/limits"';
